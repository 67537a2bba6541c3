#include "tools/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/command.h"
#include "tools/usage.h"

namespace attn::tools {
namespace {

using Row = std::pair<std::string, std::string>;  // syntax, description

std::string rows_text(const std::string& title, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.first.size());
  std::string text = fmt::format("\n{}:\n", title);
  for (const Row& row : rows) text += fmt::format("  {:{}}  {}\n", row.first, width, row.second);
  return text;
}

// The type name without the suffix that validators append.
std::string type_words(const ::CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

std::string option_words(const ::CLI::Option& option) {
  std::string words;
  for (const std::string& name : option.get_snames()) words += fmt::format("-{}, ", name);
  for (const std::string& name : option.get_lnames()) words += fmt::format("--{}, ", name);
  words.resize(words.size() - 2);
  const std::string type = type_words(option);
  return option.get_type_size() == 0 || type.empty() ? words : words + " " + type;
}

std::string usage(const ::CLI::App& app, const std::vector<const ::CLI::Option*>& options) {
  std::string text = app.get_name();
  for (const ::CLI::App* up = app.get_parent(); up != nullptr; up = up->get_parent()) {
    text = up->get_name() + " " + text;
  }
  if (app.get_require_subcommand_min() > 0) text += " COMMAND";
  for (const ::CLI::Option* option : options) {
    if (option->get_positional()) {
      const std::string word = type_words(*option);
      text += option->get_required() ? " " + word : " [" + word + "]";
    } else if (option->get_required()) {
      text += " " + option_words(*option).substr(option_words(*option).find("-"));
    }
  }
  return text + " [OPTIONS]";
}

struct HelpOptions {
  std::vector<std::string> words;  // name of a command
};

// Prints the help of the named command, or of attnc if `words` is empty.
int print_help(const ::CLI::App& app, const std::vector<std::string>& words) {
  const ::CLI::App* command = &app;
  for (const std::string& word : words) {
    const ::CLI::App* next = command_named(*command, word);
    if (next == nullptr) return usage_error(no_command(*command, word));
    command = next;
  }
  fmt::print("{}", HelpFormatter().make_help(command, "", ::CLI::AppFormatMode::Normal));
  return kOk;
}

}  // namespace

void add_help(CLI::App& app, Action& action) {
  auto options = std::make_shared<HelpOptions>();
  CLI::App* command = app.add_subcommand("help", "Print help for attnc or for a command");
  command->add_option("command", options->words, "A command, such as `compile` or `cache prune`")
      ->type_name("COMMAND");
  set_action(*command, action, options,
             [&app](const HelpOptions& chosen) { return print_help(app.cli11(), chosen.words); });
}

std::string HelpFormatter::make_help(const ::CLI::App* app, std::string /*name*/,
                                     ::CLI::AppFormatMode /*mode*/) const {
  const std::vector<const ::CLI::Option*> options = app->get_options({});
  std::vector<Row> positionals, named, commands;
  for (const ::CLI::Option* option : options) {
    if (option->get_positional()) {
      positionals.emplace_back(type_words(*option), option->get_description());
    } else {
      named.emplace_back(option_words(*option), option->get_description());
    }
  }
  for (const ::CLI::App* command : app->get_subcommands({})) {
    commands.emplace_back(command->get_name(), command->get_description());
  }
  return fmt::format("{}\n\nUsage: {}\n", app->get_description(), usage(*app, options)) +
         rows_text("Commands", commands) + rows_text("Arguments", positionals) +
         rows_text("Options", named) + app->get_footer();
}

}  // namespace attn::tools
