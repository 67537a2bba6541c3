#include "tools/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "compiler/support/text.h"
#include "tools/console.h"
#include "tools/report.h"
#include "tools/spec.h"

namespace attn::tools {
namespace {

std::string in_lower_case(std::string_view word) {
  std::string result(word);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// The name closest to `word`, ignoring case; "" if none is similar.
std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  return std::string(support::nearest(in_lower_case(word), candidates));
}

std::string hint(const std::string& meant) {
  return meant.empty() ? "" : fmt::format("; did you mean {}?", support::quoted(meant));
}

std::vector<std::string> command_names(const DescribedCommand& command) {
  std::vector<std::string> names;
  for (const DescribedCommand& below : command.commands) names.push_back(below.name);
  return names;
}

std::vector<std::string> option_names(const DescribedCommand& command) {
  std::vector<std::string> names;
  for (const DescribedOption& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// The innermost command given on the command line.
const ::CLI::App& chosen(const ::CLI::App& app) {
  const std::vector<::CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app : chosen(*commands.back());
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// The command that reads a file of this name; "" if it is none of attnc's.
std::string reader_of(const std::string& word) {
  if (is_spec_name(word)) return "check";
  return word.ends_with(".attnplan") ? "inspect" : "";
}

// "-target": an option of several letters is written with two dashes.
std::string meant_option(const std::string& name, const std::vector<std::string>& names) {
  const bool single = name.size() > 2 && name[1] != '-';
  return nearest(single ? "-" + name : name, names);
}

// What a command has instead of an option of others; "" if it has no such thing.
std::string other_way(const std::string& name, const DescribedCommand& command) {
  const bool gradients = name == "--grad" && command.option("--direction") != nullptr;
  return gradients ? "--direction both" : "";
}

std::string unexpected(const DescribedCommand& command, const std::vector<std::string>& extra) {
  const auto option = std::ranges::find_if(extra, is_option);
  if (option == extra.end()) {
    return fmt::format("{} does not take the argument {}", support::quoted(command.full_name),
                       support::quoted(extra.front()));
  }
  const std::string name = option->substr(0, option->find('='));
  const std::string other = other_way(name, command);
  return fmt::format("{} has no option {}{}", support::quoted(command.full_name),
                     support::quoted(name),
                     hint(other.empty() ? meant_option(name, option_names(command)) : other));
}

// "SPEC..., -o FILE": what is required and not given.
std::string missing(const ::CLI::App& app) {
  const DescribedCommand command = describe(app);
  const std::vector<const ::CLI::Option*> all = app.get_options({});
  std::vector<std::string> words;
  for (const ::CLI::Option* option : all) {
    if (!option->get_required() || option->count() > 0) continue;
    if (option->get_positional()) {
      const std::string type = option->get_type_name();  // "NAME:h200|h100" if it lists choices
      words.push_back(type.substr(0, type.find(':')));
    } else {
      const DescribedOption* described = command.option(option->get_name());
      words.push_back(described == nullptr ? option->get_name()
                                           : described->names.front() + " " + described->type);
    }
  }
  return fmt::format("{} needs {}", support::quoted(command.full_name), fmt::join(words, " and "));
}

// Of an option that got no value, or several: CLI11's message begins with "NAME: ".
std::string wrong_count(const ::CLI::App& app, const std::string& message) {
  const std::string name = message.substr(0, message.find(':'));
  const DescribedCommand command = describe(app);
  const DescribedOption* option = command.option(name);
  if (option == nullptr) return message;
  if (message.find("At Most") != std::string::npos) return name + " is given twice";
  return fmt::format("{} needs a value: {}", name, option->type);
}

// CLI11's message is "Could not convert: NAME = VALUE".
std::string not_a_number(const std::string& message) {
  const std::string_view all = message;
  const std::size_t colon = all.find(": "), equals = all.find(" = ");
  if (colon == all.npos || equals == all.npos || colon > equals) return message;
  return fmt::format("{}: '{}' is not a number, or too large",
                     all.substr(colon + 2, equals - colon - 2),
                     support::printable(all.substr(equals + 3)));
}

// CLI11's message is "NAME excludes NAME".
std::string exclusive(const std::string& message) {
  static constexpr std::string_view kBetween = " excludes ";
  const std::size_t at = message.find(kBetween);
  if (at == std::string::npos) return message;
  return fmt::format("{} and {} cannot be given together", message.substr(0, at),
                     message.substr(at + kBetween.size()));
}

}  // namespace

std::string no_command(const DescribedCommand& command, const std::string& word) {
  const bool below = command.name != command.full_name;
  const std::string before = below ? command.name + " " : "";
  const std::string reader = below ? "" : reader_of(word);
  if (!reader.empty()) {
    return fmt::format("a command is missing before {}, such as {}", support::quoted(word),
                       support::quoted(fmt::format("attnc {} {}", reader, word)));
  }
  const std::string meant = nearest(word, command_names(command));
  return fmt::format("unknown command {}{}", support::quoted(before + word),
                     hint(meant.empty() ? "" : before + meant));
}

namespace {

// Options that need no command.
bool stops(const std::string& word) {
  static constexpr std::string_view kWords[] = {"-h", "--help", "-V", "--version"};
  return std::ranges::find(kWords, word) != std::end(kWords);
}

// Follows the commands that `words` name, to the innermost; `word` is the first that is none.
struct Followed {
  const DescribedCommand* command;
  const std::string* word = nullptr;
};

Followed follow(const DescribedCommand& command, const std::vector<std::string>& words) {
  Followed at{&command};
  for (std::size_t i = 0; i < words.size() && !at.command->commands.empty(); ++i) {
    if (stops(words[i])) return {at.command, &words[i]};
    const DescribedOption* option =
        is_option(words[i]) ? at.command->option(words[i].substr(0, words[i].find('='))) : nullptr;
    if (option != nullptr && option->is_common) {
      const bool apart = option->takes_value() && words[i].find('=') == std::string::npos;
      i += apart ? 1 : 0;
      continue;
    }
    const DescribedCommand* next = at.command->command(words[i]);
    if (next == nullptr) return {at.command, &words[i]};
    at.command = next;
  }
  return at;
}

}  // namespace

std::string unknown_command(const DescribedCommand& command,
                            const std::vector<std::string>& words) {
  const Followed at = follow(command, words);
  return at.word == nullptr || is_option(*at.word) ? "" : no_command(*at.command, *at.word);
}

const DescribedCommand* incomplete_command(const DescribedCommand& command,
                                           const std::vector<std::string>& words) {
  const Followed at = follow(command, words);
  return at.word == nullptr && at.command->needs_command ? at.command : nullptr;
}

std::string words_of(const ::CLI::App& app, const ::CLI::ParseError& error) {
  const ::CLI::App& command = chosen(app);
  const std::vector<std::string> extra = command.remaining();
  // Checked first: otherwise CLI11 reports a misspelt option as a missing one.
  if (!extra.empty()) return unexpected(describe(command), extra);
  if (dynamic_cast<const ::CLI::RequiredError*>(&error) != nullptr) return missing(command);
  const std::string message = error.what();
  if (dynamic_cast<const ::CLI::ArgumentMismatch*>(&error) != nullptr) {
    return wrong_count(command, message);
  }
  if (dynamic_cast<const ::CLI::ConversionError*>(&error) != nullptr) return not_a_number(message);
  if (dynamic_cast<const ::CLI::ExcludesError*>(&error) != nullptr) return exclusive(message);
  return message;
}

std::string hint_of(const ::CLI::App& app) {
  const std::string name = describe(chosen(app)).full_name;
  const std::size_t space = name.find(' ');
  if (space == std::string::npos) return "";
  return fmt::format("Run `attnc help{}` for its options\n", name.substr(space));
}

Format asked_format(const std::vector<std::string>& words) {
  const auto word = CLI::detail::value_of(words, "--format");
  return word == "jsonl" ? Format::json_lines : word == "json" ? Format::json : Format::text;
}

int usage_error(const std::string& message, Format format, const std::string& hint) {
  static constexpr const char* kHint =
      "Run `attnc help` for the commands, `attnc help COMMAND` for the options\n";
  tell(fmt::format("{}: {}\n{}", error_paint()(support::Style::error, "error"), message,
                   hint.empty() ? kHint : hint));
  const Error error{ErrorCode::invalid_argument, message, {}, {}};
  print_data({{"error", error_json(error, nullptr)}}, format);
  return kUsage;
}

}  // namespace attn::tools
