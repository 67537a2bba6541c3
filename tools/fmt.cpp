#include <fmt/format.h>

#include <algorithm>

#include "tools/command.h"
#include "tools/report.h"
#include "tools/tree.h"

namespace attn::tools {
namespace fmt_command {
namespace {

struct Options {
  std::vector<std::string> files;
  bool check = false;
};

// Prints, compares or replaces one text.
int put(const Options& options, const std::string& path, const support::Source& source,
        const std::string& canonical) {
  const bool same = source.text() == canonical;
  if (options.check) {
    if (!same) fmt::print("{}\n", source.name());
    return same ? kOk : kSpecHasErrors;
  }
  if (path == "-") {
    fmt::print("{}", canonical);
    return kOk;
  }
  if (same) return kOk;
  const Status replaced = replace_file(path, canonical);
  return replaced.ok() ? kOk : report(replaced.error(), Format::text);
}

int format(const Options& options, const std::string& path) {
  const Result<support::Source> source = support::Source::read(path);
  if (!source.ok()) return report(source.error(), Format::text);
  const std::optional<ast::Spec> spec = read_tree(*source);
  if (!spec) return kSpecHasErrors;
  const auto canonical = print_tree(*spec, *source, source->is_json() ? Form::json : Form::dsl);
  return canonical ? put(options, path, *source, *canonical) : kSpecHasErrors;
}

int run(const Options& options) {
  int worst = kOk;
  for (const std::string& path : options.files) worst = std::max(worst, format(options, path));
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
          "Files (.attn, .attn.json), or - to read standard input and write standard output")
      ->type_name("FILE...")
      ->required();
  command->add_flag(
      "--check", options->check,
      "Write nothing; list the files that would change, and exit with 1 if there are any");
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
