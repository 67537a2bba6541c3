#include <fmt/format.h>

#include "runtime/io/file.h"
#include "tools/command.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/tree.h"

namespace attn::tools {
namespace convert_command {
namespace {

struct Options {
  std::string path;
  std::string output;
  Format format = Format::text;
  Edits edits;
  std::string form;      // empty: by the output's name, else the form that the spec does not have
  bool inlined = false;  // what the spec imports is written into it
};

Form form(const Options& options, const support::Source& source) {
  const bool json = !options.form.empty()    ? options.form == "json"
                    : options.output.empty() ? !source.is_json()
                                             : options.output.ends_with(".json");
  return json ? Form::json : Form::dsl;
}

// The diagnostics as data; as text they were printed.
int spec_has_errors(const Error& error, Format format) {
  print_data(Json::parse(error.payload), format);
  return kSpecHasErrors;
}

int run(const Options& options) {
  const Result<support::Source> source = read_source(options.path, options.edits);
  if (!source.ok()) return report(source.error(), options.format);
  Result<ast::Spec> spec = read_tree(*source);
  if (spec.ok() && options.inlined) spec = with_imports(std::move(*spec), *source);
  if (!spec.ok()) return spec_has_errors(spec.error(), options.format);
  const Form wanted = form(options, *source);
  const Result<std::string> text = print_tree(*spec, *source, wanted);
  if (!text.ok()) return spec_has_errors(text.error(), options.format);
  Json json = {{"form", wanted == Form::json ? "json" : "dsl"}};
  if (options.output.empty()) {
    json["text"] = *text;
    if (options.format == Format::text) fmt::print("{}", *text);
    if (options.format == Format::json) print_json(json);
    return kOk;
  }
  json["file"] = options.output;
  const Status written = io::write_file(options.output, std::as_bytes(std::span(*text)));
  if (written.ok() && options.format == Format::json) print_json(json);
  return written.ok() ? kOk : report(written.error(), options.format);
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
  command
      ->add_option("--to", options->form,
                   "Form to write (default: by the name of the output file, else the other form)")
      ->type_name("dsl|json")
      ->check(CLI::IsMember({"dsl", "json"}));
  add_edits(*command, options->edits);
  command->add_flag("--inline-imports", options->inlined,
                    "Write the functions that the spec imports and calls into it");
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
