// Help formatter whose output does not depend on the version of CLI11.
#pragma once

#include <CLI/CLI.hpp>

namespace attn::tools {

class HelpFormatter : public ::CLI::FormatterBase {
 public:
  std::string make_help(const ::CLI::App* app, std::string name,
                        ::CLI::AppFormatMode mode) const override;
};

}  // namespace attn::tools
