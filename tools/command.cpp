#include "tools/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/ir/attention.h"
#include "compiler/support/text.h"

namespace attn::tools {
namespace {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const std::size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin));
}

// "NAME=VALUE" for "NAME = VALUE", "NAME:VALUE" and "NAME VALUE"; "" for anything else.
std::string as_assignment(std::string_view text) {
  const std::size_t sign = text.find_first_of("=:, ");
  if (sign == text.npos) return "";
  const std::string name = trimmed(text.substr(0, sign));
  std::string value = trimmed(text.substr(sign + 1));
  if (value.starts_with('=')) value = trimmed(value.substr(1));
  return name.empty() || value.empty() ? "" : fmt::format("{}={}", name, value);
}

// Splits "NAME=VALUE". Throws ValidationError on a usage error.
void assign(const std::string& option, const std::string& text,
            std::map<std::string, std::string>& assignments) {
  const std::size_t equals = text.find('=');
  const bool spaced = equals != std::string::npos && equals > 0 && text[equals - 1] == ' ';
  if (equals == std::string::npos || equals == 0 || spaced) {
    const std::string meant = as_assignment(text);
    const std::string hint =
        meant.empty() ? "" : fmt::format("; write {}", support::quoted(option + " " + meant));
    throw CLI::ValidationError(option, fmt::format("'{}' is not of the form NAME=VALUE{}",
                                                   support::printable(text), hint));
  }
  const std::string name = text.substr(0, equals);
  if (!assignments.emplace(name, text.substr(equals + 1)).second) {
    throw CLI::ValidationError(option,
                               fmt::format("'{}' is given twice", support::printable(name)));
  }
}

}  // namespace

CLI::Option* add_assignments(CLI::App& command, const std::string& name, const std::string& value,
                             std::map<std::string, std::string>& assignments,
                             const std::string& description) {
  auto take = [name, &assignments](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) assign(name, text, assignments);
    return true;
  };
  return command.add_option(name, CLI::callback_t(take), description)
      ->type_name(value)
      ->type_size(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_in(CLI::App& command, std::map<std::string, std::string>& inputs) {
  (void)add_assignments(command, "--in", "NAME=VALUE", inputs,
                        "Set a tensor or param: random[:SEED], zeros, const:X, X, or @FILE.npy "
                        "(repeatable)");
}

void add_format(CLI::App& command, Format& format, bool lines) {
  auto take = [&format](const std::string& word) {
    format = word == "jsonl" ? Format::json_lines : word == "json" ? Format::json : Format::text;
  };
  std::vector<std::string> words = {"text", "json"};
  if (lines) words.emplace_back("jsonl");
  command
      .add_option_function<std::string>("--format", take,
                                        lines ? "Output format; jsonl: a line of JSON for each "
                                                "row, as soon as it is known"
                                              : "Output format")
      ->type_name(fmt::format("{}", fmt::join(words, "|")))
      ->check(CLI::IsMember(words))
      ->default_text("text");
}

void add_bindings(CLI::App& command, const std::string& value, sema::Bindings& bindings,
                  const std::string& description) {
  std::vector<std::string> names;
  for (const ir::Dim dim : ir::kDims) names.push_back(fmt::format("{}=", to_string(dim)));
  names.emplace_back("D=");
  add_assignments(command, "--bind", value, bindings, description)->check(CLI::Suggest(names));
}

void add_bind(CLI::App& command, sema::Bindings& bindings) {
  add_bindings(command, "NAME=VALUE", bindings,
               "Set a dimension or parameter of the spec (repeatable)");
}

void add_subject(CLI::App& command, std::string& path) {
  command
      .add_option("subject", path, "Spec (.attn, .attn.json, - for standard input) or plan file")
      ->type_name("SPEC|PLAN")
      ->required();
}

void add_direction(CLI::App& command, std::string& direction, const std::string& description) {
  command.add_option("--direction", direction, description)
      ->type_name("fwd|bwd|both")
      ->check(CLI::IsMember({"fwd", "bwd", "both"}));
}

void add_cudnn(CLI::App& command, std::string& folder) {
  command.add_option("--cudnn", folder, "Folder of the cuDNN to use (default: search for one)")
      ->type_name("DIR");
}

}  // namespace attn::tools
