// Help as text, as JSON and as a manual page. The text does not depend on the version of CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "compiler/support/paint.h"
#include "tools/described.h"

namespace attn::tools {

class HelpFormatter : public ::CLI::FormatterBase {
 public:
  std::string make_help(const ::CLI::App* app, std::string name,
                        ::CLI::AppFormatMode mode) const override;
};

// Usage, commands, arguments, options, and how it exits.
std::string help_text(const DescribedCommand& command, support::Paint paint);

// What a command line without a command gets: usage and commands.
std::string short_help_text(const DescribedCommand& command, support::Paint paint);

// All commands in the format of man(7).
std::string manual_page(const DescribedCommand& command);

}  // namespace attn::tools
