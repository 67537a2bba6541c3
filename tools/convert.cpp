#include <fmt/format.h>

#include "runtime/io/file.h"
#include "tools/command.h"
#include "tools/report.h"
#include "tools/tree.h"

namespace attn::tools {
namespace convert_command {
namespace {

struct Options {
  std::string path;
  std::string output;
  std::string form;  // empty: by the output's name, else the form that the spec does not have
};

Form form(const Options& options, const support::Source& source) {
  const bool json = !options.form.empty()    ? options.form == "json"
                    : options.output.empty() ? !source.is_json()
                                             : options.output.ends_with(".json");
  return json ? Form::json : Form::dsl;
}

int run(const Options& options) {
  const Result<support::Source> source = support::Source::read(options.path);
  if (!source.ok()) return report(source.error(), Format::text);
  const std::optional<ast::Spec> spec = read_tree(*source);
  if (!spec) return kSpecHasErrors;
  const std::optional<std::string> text = print_tree(*spec, *source, form(options, *source));
  if (!text) return kSpecHasErrors;
  if (options.output.empty()) {
    fmt::print("{}", *text);
    return kOk;
  }
  const Status written = io::write_file(options.output, std::as_bytes(std::span(*text)));
  return written.ok() ? kOk : report(written.error(), Format::text);
}

}  // namespace
}  // namespace convert_command

void add_convert(CLI::App& app, Action& action) {
  using namespace convert_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("convert", "Convert a spec to JSON, or JSON to a spec");
  command->add_option("spec", options->path, "File (.attn, .attn.json), or - for standard input")
      ->type_name("SPEC")
      ->required();
  command->add_option("-o,--output", options->output, "File to write instead of standard output")
      ->type_name("FILE");
  auto take = [options](const std::string& word) {
    if (word != "dsl" && word != "json") {
      throw CLI::ValidationError("--to", fmt::format("'{}' is not dsl or json", word));
    }
    options->form = word;
  };
  command
      ->add_option_function<std::string>(
          "--to", take,
          "Form to write (default: by the name of the output file, else the other form)")
      ->type_name("dsl|json");
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
