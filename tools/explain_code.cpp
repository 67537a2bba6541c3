#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

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

// The code whose digits are those of `word`, without leading zeros; else the nearest. "" if none is
// similar.
std::string meant_code(std::string_view word) {
  const auto digits = [](std::string_view text) {
    std::string found;
    std::ranges::copy_if(text, std::back_inserter(found),
                         [](unsigned char c) { return std::isdigit(c) != 0; });
    return found.substr(std::min(found.find_first_not_of('0'), found.size()));
  };
  const std::vector<std::string> all = codes();
  const std::string wanted = digits(word);
  const auto same = std::ranges::find_if(all, [&](const std::string& id) {
    const bool letter_fits =
        std::isalpha(static_cast<unsigned char>(word[0])) == 0 || word[0] == id[0];
    return !wanted.empty() && letter_fits && digits(id) == wanted;
  });
  if (same != all.end()) return *same;
  const std::vector<std::string_view> views(all.begin(), all.end());
  return std::string(support::nearest(word, views));
}

Error unknown_code(const std::string& id) {
  const std::string meant = meant_code(id);
  const std::string hint =
      meant.empty() ? "" : fmt::format("; did you mean {}?", support::quoted(meant));
  return {ErrorCode::invalid_argument,
          fmt::format("unknown code {}{}", support::quoted(id), hint),
          {"`attnc explain-code --list` lists all codes"}};
}

int run(const Options& options) {
  if (options.list == !options.code.empty()) {
    return report({ErrorCode::invalid_argument, "give either a CODE or --list"}, options.format);
  }
  if (options.list) return list(options);
  std::string id = options.code;
  for (char& c : id) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const diag::Code code : diag::all_codes()) {
    if (diag::id_of(code) == id) return explain(code, options.format);
  }
  return report(unknown_code(id), options.format);
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
