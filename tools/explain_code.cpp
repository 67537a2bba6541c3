#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "compiler/diag/explanations.h"
#include "compiler/support/text.h"
#include "tools/command.h"
#include "tools/report.h"

namespace attn::tools {
namespace explain_code_command {
namespace {

struct Options {
  std::string code;
  bool list = false;
  Format format = Format::text;
};

Json code_json(diag::Code code) {
  return {{"code", id_of(code)},
          {"severity", to_string(severity_of(code))},
          {"summary", summary_of(code)}};
}

int list(const Options& options) {
  Json codes = Json::array();
  for (const diag::Code code : diag::all_codes()) {
    if (options.format == Format::text) {
      fmt::print("{}  {}\n", diag::id_of(code), diag::summary_of(code));
    }
    codes.push_back(code_json(code));
  }
  if (options.format == Format::json) print_json({{"codes", codes}});
  return kOk;
}

std::string indented(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += fmt::format("    {}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

int explain(diag::Code code, Format format) {
  const diag::Explanation& explanation = diag::explanation_of(code);
  if (format == Format::json) {
    Json json = code_json(code);
    json["explanation"] = explanation.text;
    json["wrong"] = explanation.wrong;
    json["right"] = explanation.right;
    print_json(json);
  } else {
    fmt::print("{} ({}): {}\n\n{}\n\nWrong:\n\n{}\nRight:\n\n{}", id_of(code),
               to_string(severity_of(code)), summary_of(code), explanation.text,
               indented(explanation.wrong), indented(explanation.right));
  }
  return kOk;
}

std::vector<std::string> codes() {
  std::vector<std::string> ids;
  for (const diag::Code code : diag::all_codes()) ids.emplace_back(diag::id_of(code));
  return ids;
}

int run(const Options& options) {
  if (options.list == !options.code.empty()) {
    return report({ErrorCode::invalid_argument, "give either a CODE or --list", {}, {}},
                  options.format);
  }
  if (options.list) return list(options);
  std::string id = options.code;
  for (char& c : id) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const diag::Code code : diag::all_codes()) {
    if (diag::id_of(code) == id) return explain(code, options.format);
  }
  return report({ErrorCode::invalid_argument,
                 fmt::format("unknown code {}; use --list to see all codes", support::quoted(id)),
                 {},
                 {}},
                options.format);
}

}  // namespace
}  // namespace explain_code_command

void add_explain_code(CLI::App& app, Action& action) {
  using namespace explain_code_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "explain-code", "Explain a diagnostic code, with a wrong and a right example");
  command->add_option("code", options->code, "Diagnostic code, such as E0203")
      ->type_name("CODE")
      ->check(CLI::Suggest(codes()));
  command->add_flag("--list", options->list, "List all codes");
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
