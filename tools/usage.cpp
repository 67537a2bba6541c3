#include "tools/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "compiler/support/text.h"
#include "tools/command.h"

namespace attn::tools {
namespace {

std::string in_lower_case(std::string_view word) {
  std::string result(word);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// "attnc cache"
std::string full_name(const ::CLI::App& app) {
  const ::CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

// The name closest to `word`, ignoring case; "" if none is similar.
std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  return std::string(support::nearest(in_lower_case(word), candidates));
}

std::string hint(const std::string& meant) {
  return meant.empty() ? "" : fmt::format("; did you mean {}?", support::quoted(meant));
}

std::vector<std::string> command_names(const ::CLI::App& app) {
  std::vector<std::string> names;
  for (const ::CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// "--target", "-o"
std::vector<std::string> option_names(const ::CLI::App& app) {
  std::vector<std::string> names;
  for (const ::CLI::Option* option : app.get_options({})) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// The innermost command given on the command line.
const ::CLI::App& chosen(const ::CLI::App& app) {
  const std::vector<::CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app : chosen(*commands.back());
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

}  // namespace

const ::CLI::App* command_named(const ::CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands({});
  const auto found = std::ranges::find_if(
      commands, [&](const ::CLI::App* command) { return command->get_name() == name; });
  return found == commands.end() ? nullptr : *found;
}

std::string no_command(const ::CLI::App& app, const std::string& word) {
  const std::string before = app.get_parent() == nullptr ? "" : app.get_name() + " ";
  const std::string meant = nearest(word, command_names(app));
  return fmt::format("unknown command {}{}", support::quoted(before + word),
                     hint(meant.empty() ? "" : before + meant));
}

std::string unknown_command(const ::CLI::App& app, const std::vector<std::string>& words) {
  const ::CLI::App* at = &app;
  for (const std::string& word : words) {
    if (at->get_subcommands({}).empty() || is_option(word)) return "";
    const ::CLI::App* next = command_named(*at, word);
    if (next == nullptr) return no_command(*at, word);
    at = next;
  }
  if (at->get_require_subcommand_min() == 0) return "";
  return fmt::format("{} needs a command: {}", support::quoted(full_name(*at)),
                     fmt::join(command_names(*at), ", "));
}

std::string unexpected_argument(const ::CLI::App& app) {
  const ::CLI::App& command = chosen(app);
  const std::vector<std::string> extra = command.remaining();
  if (extra.empty()) return "";
  const auto option = std::ranges::find_if(extra, is_option);
  if (option == extra.end()) {
    return fmt::format("{} does not take the argument {}", support::quoted(full_name(command)),
                       support::quoted(extra.front()));
  }
  const std::string name = option->substr(0, option->find('='));
  return fmt::format("{} has no option {}{}", support::quoted(full_name(command)),
                     support::quoted(name), hint(nearest(name, option_names(command))));
}

int usage_error(const std::string& message) {
  fmt::print(stderr,
             "error: {}\nRun `attnc help` for the commands, `attnc help COMMAND` for the options\n",
             message);
  return kUsage;
}

}  // namespace attn::tools
