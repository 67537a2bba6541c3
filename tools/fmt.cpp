#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/replace_file.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/tree.h"

namespace attn::tools {
namespace fmt_command {
namespace {

struct Options {
  std::vector<std::string> files;
  bool check = false;
  Format format = Format::text;
};

// What became of one file.
struct Formatted {
  std::string path;
  bool differs = false;               // from the canonical layout, before
  std::optional<std::string> text{};  // of standard input, with JSON
  std::optional<Error> error{};       // not read, or not written
};

// Whether it is the error of an invalid spec, which is printed with its diagnostics.
bool is_invalid(const Error& error) { return error.code == ErrorCode::invalid_spec; }

// Prints, compares or replaces one text.
Status put(const Options& options, const support::Source& source, const std::string& canonical,
           Formatted& result) {
  result.differs = source.text() != canonical;
  const bool prints = options.format == Format::text;
  if (options.check) {
    if (result.differs && prints) fmt::print("{}\n", source.name());
    return {};
  }
  if (result.path == "-") {
    result.text = canonical;
    if (prints) fmt::print("{}", canonical);
    return {};
  }
  if (result.differs) ATTN_RETURN_IF_ERROR(replace_file(result.path, canonical));
  tell_detail(fmt::format("{} {}", result.path, result.differs ? "formatted" : "unchanged"));
  return {};
}

Status format(const Options& options, Formatted& result) {
  ATTN_ASSIGN(const support::Source source, read_own_source(result.path));
  ATTN_ASSIGN(const ast::Spec spec, read_tree(source));
  ATTN_ASSIGN(const std::string canonical,
              print_tree(spec, source, source.is_json() ? Form::json : Form::dsl));
  return put(options, source, canonical, result);
}

// Returns the exit code.
int report_result(const Options& options, const Formatted& result) {
  if (!result.error) return options.check && result.differs ? kSpecHasErrors : kOk;
  return is_invalid(*result.error) ? kSpecHasErrors : report(*result.error, Format::text);
}

Json to_json(const Formatted& result) {
  Json json = {{"file", result.path}, {"ok", !result.error}, {"differs", result.differs}};
  if (result.text) json["text"] = *result.text;
  if (!result.error) return json;
  if (is_invalid(*result.error)) {
    json.update(Json::parse(result.error->payload));
  } else {
    json["error"] = error_json(*result.error, nullptr);
  }
  return json;
}

int run(const Options& options) {
  const auto paths = specs_below(options.files);
  if (!paths.ok()) return report(paths.error(), options.format);
  int worst = kOk;
  Json files = Json::array();
  for (const std::string& path : *paths) {
    Formatted result{path};
    if (const Status status = format(options, result); !status.ok()) result.error = status.error();
    worst = std::max(worst, report_result(options, result));
    files.push_back(to_json(result));
  }
  if (options.format == Format::json) print_json({{"files", files}});
  return worst;
}

}  // namespace
}  // namespace fmt_command

void add_fmt(CLI::App& app, Action& action) {
  using namespace fmt_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("fmt", "Format specs in place");
  command
      ->add_option(
          "files", options->files,
          "Files (.attn, .attn.json), folders of them, searched recursively, or - to read standard "
          "input and write standard output")
      ->type_name("SPEC|DIR...")
      ->required();
  command->add_flag(
      "--check", options->check,
      "Write nothing; list the files that would change, and exit with 1 if there are any");
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
