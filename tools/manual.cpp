// The manual page, from the same tables as the help.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tools/help.h"

namespace attn::tools {
namespace {

// Text for man(7): backslashes, hyphens, and lines that would be requests.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// The text in quotes, as the argument of a request.
std::string argument(std::string_view text) {
  std::string out = roff(text);
  for (std::size_t at = 0; (at = out.find('"', at)) != std::string::npos; at += 4) {
    out.replace(at, 1, "\\(dq");
  }
  return "\"" + out + "\"";
}

std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string paragraph(const std::string& tag, const std::string& text) {
  return fmt::format(".TP\n.B {}\n{}\n", argument(tag), roff(text));
}

std::string options_text(const std::vector<DescribedOption>& options, bool common = false) {
  std::string text;
  for (const DescribedOption& option : options) {
    if (option.is_common == common) text += paragraph(syntax_of(option), meaning_of(option));
  }
  return text;
}

std::string command_text(const DescribedCommand& command) {
  std::string text = fmt::format(".SS {}\n{}.\n.PP\n.B {}\n", argument(command.full_name),
                                 roff(command.description), argument(command.usage()));
  text += options_text(command.arguments) + options_text(command.options);
  for (const DescribedCommand& below : command.commands) text += command_text(below);
  return text;
}

std::string exit_status_text() {
  std::string text = ".SH \"EXIT STATUS\"\n";
#define ATTN_EXIT_CODE(code, meaning) text += paragraph(#code, meaning);
#include "tools/exit_codes.def"
#undef ATTN_EXIT_CODE
  return text;
}

std::string examples_text() {
  std::string text = ".SH EXAMPLES\n";
  const auto add = [&text](std::string_view meaning, std::string_view command) {
    if (!meaning.empty()) text += fmt::format(".PP\n{}:\n", roff(meaning));
    text += fmt::format(".PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(command));
  };
#define ATTN_EXAMPLE(meaning, command) add(meaning, command);
#include "tools/examples.def"
#undef ATTN_EXAMPLE
  return text;
}

std::string environment_text() {
  std::string text = ".SH ENVIRONMENT\n";
#define ATTN_VARIABLE(name, meaning) text += paragraph(#name, meaning);
#include "tools/variables.def"
#undef ATTN_VARIABLE
  return text;
}

}  // namespace

std::string manual_page(const DescribedCommand& command) {
  const bool whole = command.name == command.full_name;
  std::string name = command.full_name;
  std::ranges::replace(name, ' ', '-');
  std::string text =
      fmt::format(".TH {} 1 \"\" {} \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n",
                  argument(upper_case(name)), argument("attnc " ATTN_VERSION), roff(name),
                  roff(command.description), argument(command.usage()));
  if (whole) {
    text += ".SH COMMANDS\n";
    for (const DescribedCommand& below : command.commands) text += command_text(below);
  } else {
    text += ".SH OPTIONS\n" + options_text(command.arguments) + options_text(command.options);
    for (const DescribedCommand& below : command.commands) text += command_text(below);
  }
  text += ".SH \"COMMON OPTIONS\"\n" + options_text(command.options, true);
  if (!whole) return text;
  return text + exit_status_text() + environment_text() + examples_text();
}

}  // namespace attn::tools
