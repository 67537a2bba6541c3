#include "tools/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "compiler/support/text.h"
#include "runtime/targets/targets.h"
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

// Options of other compilers and of other libraries, and what attnc has instead.
struct OtherOption {
  std::string_view names;  // each between spaces
  std::string_view here;
};
constexpr OtherOption kOtherOptions[] = {
    {" --gpu --arch --device --sm --cc --gpu-arch --gpu-architecture --compute-capability -arch "
     "--cuda-arch --hardware --card ",
     "--target"},
    {" --grad --gradient --gradients --backward --bwd --training --train ", "--direction both"},
    {" --forward --fwd --inference ", "--direction forward"},
    {" --set --define --size --sizes --shape --shapes --dim --dims --constant -D ", "--bind"},
    {" --input --inputs --tensor --param --params --arg ", "--in"},
    {" --cpu --reference --ref ", "--backend reference"},
    {" --json ", "--format json"},
    {" --sarif ", "--format sarif"},
    {" --out --outfile --out-file ", "--output"},
};

// Options that are words of the spec.
constexpr OtherOption kOfSpecs[] = {
    {" --dtype --fp16 --bf16 --half --precision ", "dtype f16;"},
    {" --causal --is-causal --mask ", "mask q_idx >= kv_idx;"},
    {" --layout ", "layout bhsd;"},
    {" --scale --softmax-scale ", "scale 0.125;"},
    {" --dropout ", "dropout 0.1;"},
};

// Sizes by the names that other tools have for them.
constexpr OtherOption kSizes[] = {
    {" --B --b --batch --batch-size --bs ", "B"},
    {" --Hq --hq --heads --num-heads --nheads ", "Hq"},
    {" --Hkv --hkv --kv-heads --num-kv-heads ", "Hkv"},
    {" --Sq --sq --seq --seqlen --seq-len --seq-length --length ", "Sq"},
    {" --Skv --skv --kv-len --seqlen-kv ", "Skv"},
    {" --D --d --head-dim --headdim --head-size ", "D"},
    {" --Dqk --dqk ", "Dqk"},
    {" --Dv --dv ", "Dv"},
};

std::string_view find_other(std::span<const OtherOption> table, const std::string& name) {
  const auto found = std::ranges::find_if(table, [&](const OtherOption& other) {
    return other.names.find(fmt::format(" {} ", name)) != std::string_view::npos;
  });
  return found == table.end() ? std::string_view() : found->here;
}

bool takes_levels(const std::string& name) {
  const bool is_level = name.starts_with("-O") && name.size() >= 3 && name.size() <= 6;
  return is_level || name == "--optimize" || name == "--opt-level" || name == "--optimization";
}

// The value of an option on the command line, "" if it has none.
std::string value_after(const std::string& name, const std::vector<std::string>& given) {
  const std::string value = CLI::detail::value_of(given, name).value_or("");
  return value.starts_with('-') ? "" : value;
}

// What a command has instead of an option of others, with the value that was given; "" if it has no
// such thing.
std::string other_way(const std::string& name, const DescribedCommand& command,
                      const std::vector<std::string>& given) {
  const std::string value = value_after(name, given);
  const std::string_view size = find_other(kSizes, name);
  if (!size.empty() && command.option("--bind") != nullptr) {
    return fmt::format("--bind {}={}", size, value.empty() ? "64" : value);
  }
  const std::string_view here = find_other(kOtherOptions, name);
  const std::size_t space = here.find(' ');
  const std::string option(here.substr(0, space));
  if (here.empty() || command.option(option) == nullptr) return "";
  const bool takes_it = space == here.npos && !value.empty() && option != "--bind";
  return takes_it ? fmt::format("{} {}", option, value) : std::string(here);
}

std::string unexpected_option(const DescribedCommand& command, const std::string& name,
                              const std::vector<std::string>& given) {
  const std::string what =
      fmt::format("{} has no option {}", support::quoted(command.full_name), support::quoted(name));
  if (takes_levels(name)) {
    return what + ": there are no levels, attnc always takes the fastest kernels that it finds";
  }
  if (const std::string_view clause = find_other(kOfSpecs, name); !clause.empty()) {
    return fmt::format("{}: it is a clause of the spec, `{}`", what, clause);
  }
  const std::string other = other_way(name, command, given);
  return what + hint(other.empty() ? meant_option(name, option_names(command)) : other);
}

// `--bind Sq=64` for `--bind Sq 64`, of which `value` is the last word; "" if it is no such thing.
std::string apart(const std::string& value, const std::vector<std::string>& given) {
  static constexpr std::string_view kAssigning[] = {"--bind", "--in", "--out"};
  for (std::size_t i = 0; i + 2 < given.size(); ++i) {
    const bool assigns = std::ranges::find(kAssigning, given[i]) != std::end(kAssigning);
    const bool is_apart = given[i + 1].find('=') == std::string::npos && given[i + 2] == value;
    if (assigns && is_apart) return fmt::format("{} {}={}", given[i], given[i + 1], value);
  }
  return "";
}

// What was meant by an argument too many: `Sq=64`, `h200`, a second spec.
std::string unexpected_argument(const DescribedCommand& command, const std::string& word,
                                const std::vector<std::string>& given) {
  const std::string what = fmt::format("{} does not take the argument {}",
                                       support::quoted(command.full_name), support::quoted(word));
  if (const std::string whole = apart(word, given); !whole.empty()) return what + hint(whole);
  const bool assigns = word.find('=') != std::string::npos &&
                       !find_other(kSizes, "--" + word.substr(0, word.find('='))).empty();
  if (assigns && command.option("--bind") != nullptr) return what + hint("--bind " + word);
  const bool is_target = !word.ends_with(".json") && targets::find_target(word).ok();
  if (is_target && command.option("--target") != nullptr) return what + hint("--target " + word);
  if (is_spec_name(word)) return what + ": it takes one spec; run it again for each";
  return what;
}

std::string unexpected(const DescribedCommand& command, const std::vector<std::string>& extra,
                       const std::vector<std::string>& given) {
  const auto option = std::ranges::find_if(extra, is_option);
  if (option == extra.end()) return unexpected_argument(command, extra.front(), given);
  return unexpected_option(command, option->substr(0, option->find('=')), given);
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

// The message for an option that got no value, or several: CLI11's begins with "NAME: ".
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

// The same for the message about `Sq`, where a command takes `64` as a spec.
std::string without_equals(const std::string& message, const std::vector<std::string>& given) {
  for (std::size_t i = 1; i + 1 < given.size(); ++i) {
    const std::string wrong = fmt::format("'{}' is not of the form NAME=VALUE", given[i]);
    if (message.ends_with(wrong)) return apart(given[i + 1], given);
  }
  return "";
}

// The command for what other tools have as one; "" for other words.
std::string other_command(const std::string& word) {
  static constexpr OtherOption kCommands[] = {
      {" backward grad gradient gradients bwd train ",
       "attnc compile SPEC --direction both -o FILE"},
      {" build make ", "attnc compile"},
      {" format prettify ", "attnc fmt"},
      {" lint validate typecheck ", "attnc check"},
      {" show dump print ", "attnc inspect"},
      {" plot picture visualize visualise ", "attnc draw"},
      {" profile time benchmark ", "attnc bench"},
      {" test compare ", "attnc verify"},
      {" targets gpus devices ", "attnc target list"},
      {" codes errors error code ", "attnc explain-code --list"},
      {" trace optimize passes ", "attnc opt"},
      {" execute eval evaluate exec ", "attnc run"},
      {" plan analyze analyse ", "attnc explain"},
      {" man manual ", "attnc help --man"},
  };
  const bool is_code =
      word.size() == 5 && (word[0] == 'E' || word[0] == 'W') &&
      std::ranges::all_of(word.substr(1), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (is_code) return "attnc explain-code " + word;
  const std::string padded = fmt::format(" {} ", in_lower_case(word));
  const auto* found = std::ranges::find_if(kCommands, [&](const OtherOption& one) {
    return one.names.find(padded) != std::string_view::npos;
  });
  return found == std::end(kCommands) ? "" : std::string(found->here);
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
  const std::string other = below ? "" : other_command(word);
  if (!other.empty())
    return fmt::format("unknown command {}{}", support::quoted(word), hint(other));
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

std::string words_of(const ::CLI::App& app, const ::CLI::ParseError& error,
                     const std::vector<std::string>& given) {
  const ::CLI::App& command = chosen(app);
  const std::vector<std::string> extra = command.remaining();
  // Checked first: otherwise CLI11 reports a misspelt option as a missing one.
  if (!extra.empty()) return unexpected(describe(command), extra, given);
  if (dynamic_cast<const ::CLI::RequiredError*>(&error) != nullptr) return missing(command);
  const std::string message = error.what();
  if (dynamic_cast<const ::CLI::ArgumentMismatch*>(&error) != nullptr) {
    return wrong_count(command, message);
  }
  if (dynamic_cast<const ::CLI::ConversionError*>(&error) != nullptr) return not_a_number(message);
  if (dynamic_cast<const ::CLI::ExcludesError*>(&error) != nullptr) return exclusive(message);
  return message + hint(without_equals(message, given));
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
  const Error error{ErrorCode::invalid_argument, message};
  print_data({{"error", error_json(error, nullptr)}}, format);
  return kUsage;
}

}  // namespace attn::tools
