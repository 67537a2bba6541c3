#include "tools/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/command.h"
#include "tools/console.h"
#include "tools/report.h"
#include "tools/usage.h"

namespace attn::tools {
namespace {

using support::Paint;
using support::Style;

using Row = std::pair<std::string, std::string>;  // syntax, description

std::string rows_text(const std::string& title, const std::vector<Row>& rows, Paint paint) {
  if (rows.empty()) return "";
  std::size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.first.size());
  std::string text = "\n" + paint(Style::heading, title + ":") + "\n";
  for (const auto& [syntax, meaning] : rows) {
    text += fmt::format("  {}{:{}}  {}\n", paint(Style::help, syntax), "", width - syntax.size(),
                        meaning);
  }
  return text;
}

std::vector<Row> rows_of(const std::vector<DescribedOption>& options, bool common = false) {
  std::vector<Row> rows;
  for (const DescribedOption& option : options) {
    if (option.is_common == common) rows.emplace_back(syntax_of(option), meaning_of(option));
  }
  return rows;
}

std::string usage_text(const DescribedCommand& command, Paint paint) {
  return fmt::format("{} {}\n", paint(Style::heading, "Usage:"), command.usage());
}

std::string commands_text(const DescribedCommand& command, Paint paint) {
  std::vector<Row> rows;
  for (const DescribedCommand& below : command.commands) {
    rows.emplace_back(below.name, below.description);
  }
  return rows_text("Commands", rows, paint);
}

std::string footer_text(const DescribedCommand& command, Paint paint) {
  if (command.name != command.full_name) return "";  // of attnc alone
  std::vector<Row> rows;
#define ATTN_EXIT_CODE(code, meaning) rows.emplace_back(#code, meaning);
#include "tools/exit_codes.def"
#undef ATTN_EXIT_CODE
  return rows_text("Exit codes", rows, paint) +
         "\nRun `attnc help COMMAND` for the options of a command.\n";
}

Json option_json(const DescribedOption& option) {
  Json json = Json::object();
  if (!option.is_argument()) json["names"] = option.names;
  if (option.takes_value()) json["type"] = option.type;
  json["description"] = option.description;
  json["required"] = option.is_required;
  if (!option.default_value.empty()) json["default"] = option.default_value;
  if (!option.choices.empty()) json["choices"] = option.choices;
  return json;
}

Json command_json(const DescribedCommand& command) {
  Json json = {{"name", command.full_name}, {"description", command.description},
               {"usage", command.usage()},  {"arguments", Json::array()},
               {"options", Json::array()},  {"commands", Json::array()}};
  for (const DescribedOption& each : command.arguments) {
    json["arguments"].push_back(option_json(each));
  }
  for (const DescribedOption& each : command.options) json["options"].push_back(option_json(each));
  for (const DescribedCommand& each : command.commands) {
    json["commands"].push_back(command_json(each));
  }
  return json;
}

struct HelpOptions {
  std::vector<std::string> words;  // name of a command
  bool manual = false;
  Format format = Format::text;
};

// What there is to read, for a word that is no command.
constexpr const char* kTopics =
    "Run `attnc help` for the commands, `attnc explain-code --list` for the codes of diagnostics, "
    "`attnc explain SPEC` for a spec\n";

int print_help(const ::CLI::App& app, const HelpOptions& options) {
  const DescribedCommand all = describe(app);
  const DescribedCommand* command = &all;
  for (const std::string& word : options.words) {
    const DescribedCommand* next = command->command(word);
    if (next == nullptr) return usage_error(no_command(*command, word), options.format, kTopics);
    command = next;
  }
  if (options.manual) {
    fmt::print("{}", manual_page(*command));
  } else if (options.format == Format::json) {
    print_json(command_json(*command));
  } else {
    fmt::print("{}", help_text(*command, output_paint()));
  }
  return kOk;
}

}  // namespace

std::string help_text(const DescribedCommand& command, Paint paint) {
  return fmt::format("{}\n\n{}", command.description, usage_text(command, paint)) +
         commands_text(command, paint) + rows_text("Arguments", rows_of(command.arguments), paint) +
         rows_text("Options", rows_of(command.options), paint) +
         rows_text(kCommonOptions, rows_of(command.options, true), paint) +
         footer_text(command, paint);
}

std::string short_help_text(const DescribedCommand& command, Paint paint) {
  return usage_text(command, paint) + commands_text(command, paint);
}

void add_help(CLI::App& app, Action& action) {
  auto options = std::make_shared<HelpOptions>();
  CLI::App* command = app.add_subcommand("help", "Print help for attnc or for a command");
  command->add_option("command", options->words, "A command, such as `compile` or `cache prune`")
      ->type_name("COMMAND")
      ->check(CLI::Suggest(app.subcommand_names()));
  command->add_flag("--man", options->manual, "Print a manual page, in the format of man(7)");
  add_format(*command, options->format);
  set_action(*command, action, options,
             [&app](const HelpOptions& chosen) { return print_help(app.cli11(), chosen); });
}

std::string HelpFormatter::make_help(const ::CLI::App* app, std::string /*name*/,
                                     ::CLI::AppFormatMode /*mode*/) const {
  return help_text(describe(*app), output_paint());
}

}  // namespace attn::tools
