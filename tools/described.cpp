#include "tools/described.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/console.h"

namespace attn::tools {
namespace {

// CLI11's type name is "TYPE", or "TYPE:A|B" with the choices that a validator describes.
DescribedOption described_option(const ::CLI::Option& option) {
  DescribedOption described;
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  const std::string type = option.get_type_name();
  const std::size_t colon = std::min(type.find(':'), type.size());
  if (option.get_type_size() != 0) described.type = type.substr(0, colon);
  if (colon < type.size()) {
    described.choices = ::CLI::detail::split(type.substr(colon + 1), '|');
    std::erase(described.choices, "");
  }
  described.description = option.get_description();
  described.default_value = option.get_default_str();
  described.is_required = option.get_required();
  described.is_common = option.get_group() == kCommonOptions;
  return described;
}

}  // namespace

const DescribedCommand* DescribedCommand::command(const std::string& wanted) const {
  const auto found = std::ranges::find(commands, wanted, &DescribedCommand::name);
  return found == commands.end() ? nullptr : &*found;
}

const DescribedOption* DescribedCommand::option(const std::string& wanted) const {
  const auto found = std::ranges::find_if(options, [&](const DescribedOption& each) {
    return std::ranges::find(each.names, wanted) != each.names.end();
  });
  return found == options.end() ? nullptr : &*found;
}

std::string DescribedCommand::usage() const {
  std::string text = full_name;
  if (needs_command) text += " COMMAND";
  for (const DescribedOption& argument : arguments) {
    text += argument.is_required ? " " + argument.type : fmt::format(" [{}]", argument.type);
  }
  for (const DescribedOption& option : options) {
    if (option.is_required) text += " " + syntax_of(option);
  }
  return text + " [OPTIONS]";
}

DescribedCommand describe(const ::CLI::App& app) {
  DescribedCommand command;
  command.name = command.full_name = app.get_name();
  for (const ::CLI::App* up = app.get_parent(); up != nullptr; up = up->get_parent()) {
    command.full_name = up->get_name() + " " + command.full_name;
  }
  command.description = app.get_description();
  command.needs_command = app.get_require_subcommand_min() > 0;
  for (const ::CLI::Option* option : app.get_options({})) {
    auto& list = option->get_positional() ? command.arguments : command.options;
    list.push_back(described_option(*option));
  }
  for (const ::CLI::App* below : app.get_subcommands({})) {
    command.commands.push_back(describe(*below));
  }
  return command;
}

std::string syntax_of(const DescribedOption& option) {
  if (option.is_argument()) return option.type;
  const std::string names = fmt::format("{}", fmt::join(option.names, ", "));
  return option.takes_value() ? names + " " + option.type : names;
}

std::string meaning_of(const DescribedOption& option) {
  if (option.default_value.empty()) return option.description;
  return fmt::format("{} (default {})", option.description, option.default_value);
}

}  // namespace attn::tools
