// Commands and their options as data, read from CLI11's tables: what help, the manual page,
// completion and messages are made from.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attn::tools {

struct DescribedOption {
  std::vector<std::string> names;  // "-o", "--output"; empty for an argument
  std::string type;                // placeholder of the value, "FILE"; empty for a flag
  std::string description;
  std::string default_value;         // empty if there is none
  std::vector<std::string> choices;  // words that complete the value
  bool is_required = false;
  bool is_common = false;  // in kCommonOptions

  bool is_argument() const { return names.empty(); }
  bool takes_value() const { return !type.empty(); }
  // Whether several values may be given, as one argument each.
  bool is_list() const { return type.ends_with("..."); }
};

struct DescribedCommand {
  std::string name;       // "prune"
  std::string full_name;  // "attnc cache prune"
  std::string description;
  std::vector<DescribedOption> arguments;
  std::vector<DescribedOption> options;
  std::vector<DescribedCommand> commands;
  bool needs_command = false;

  const DescribedCommand* command(const std::string& name) const;  // or nullptr
  const DescribedOption* option(const std::string& name) const;    // "--output"; or nullptr
  std::string usage() const;  // "attnc compile [SPEC] -o, --output FILE [OPTIONS]"
};

DescribedCommand describe(const ::CLI::App& app);

std::string syntax_of(const DescribedOption& option);  // "-o, --output FILE"
// The meaning with the default: "Output format (default text)".
std::string meaning_of(const DescribedOption& option);

}  // namespace attn::tools
