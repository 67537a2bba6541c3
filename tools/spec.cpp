#include "tools/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "compiler/diag/render_json.h"
#include "compiler/driver/driver.h"
#include "compiler/support/text.h"
#include "runtime/base/spec_form.h"
#include "runtime/plan/bundle.h"
#include "runtime/plan/container.h"
#include "tools/console.h"
#include "tools/standard_specs.h"

namespace attn::tools {

bool is_spec_name(std::string_view name) {
  return name.ends_with(".attn") || name.ends_with(".attn.json");
}

namespace {

namespace fs = std::filesystem;

bool& denied() {
  static bool deny = false;
  return deny;
}

Error io_error(const std::string& folder, const std::error_code& error) {
  return {ErrorCode::io, fmt::format("cannot read {}: {}", folder, error.message())};
}

Result<std::vector<std::string>> specs_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  fs::directory_iterator entries(folder, error);
  if (error) return io_error(folder, error);
  for (const fs::directory_entry& entry : entries) {
    if (is_spec_name(entry.path().filename().string())) paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  if (paths.empty()) return {ErrorCode::io, fmt::format("no specs in {}", folder)};
  return paths;
}

// Adds the specs in `folder` and below it.
Status add_specs_below(const std::string& folder, std::vector<std::string>& paths) {
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error);
  const std::size_t first = paths.size();
  while (!error && entries != fs::recursive_directory_iterator()) {
    const std::string name = entries->path().filename().string();
    if (name.starts_with('.') && entries->is_directory(error)) {
      entries.disable_recursion_pending();
    } else if (is_spec_name(name) && entries->is_regular_file(error)) {
      paths.push_back(entries->path().string());
    }
    entries.increment(error);
  }
  if (error) return io_error(folder, error);
  if (paths.size() == first) return {ErrorCode::io, fmt::format("no specs in {}", folder)};
  std::sort(paths.begin() + static_cast<std::ptrdiff_t>(first), paths.end());
  return {};
}

// The spec in the same folder whose name is most like that of a file that does not exist; "" if
// none is similar.
std::string similar_file(const std::string& path) {
  const fs::path wanted(path);
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_spec_name(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view meant = support::nearest(wanted.filename().string(), views);
  return meant.empty() ? "" : (wanted.parent_path() / meant).string();
}

// The file, or else the standard spec, whose name is most like the path.
std::string similar_spec(const std::string& path) {
  const std::string file = similar_file(path);
  if (!file.empty()) return file;
  const std::vector<std::string> names = standard_spec_names();
  const std::vector<std::string_view> views(names.begin(), names.end());
  return std::string(support::nearest(path, views));
}

std::string quoted_for_a_shell(const std::string& path) {
  return path.find(' ') == path.npos ? path : fmt::format("'{}'", path);
}

// The error for a plan file where a spec is read.
Error plan_instead(const std::string& path, const support::Source& source) {
  const auto family = plan::deserialize_family(source.text());
  const bool is_divided = family.ok() && !family->ranks.empty();
  const std::string file = path == "-" ? "PLAN" : quoted_for_a_shell(support::printable(path));
  return {
      ErrorCode::invalid_argument,
      fmt::format("{}: this is a plan file{}, not a spec", support::printable(source.name()),
                  is_divided ? " of an attention that is divided among several GPUs" : ""),
      {fmt::format("`attnc inspect {}` shows it", file),
       is_divided ? "to divide it otherwise, give the spec that it was compiled from"
                  : fmt::format("`attnc compile --recompile {} -o NEW` compiles its programs again",
                                file)}};
}

// The error for diagnostics that were printed, if there are errors, or warnings with --deny
// warnings.
std::optional<Error> refusal(const diag::Sink& sink, Format format) {
  if (!sink.has_errors()) return report_denied(sink, format);
  print_data(diag::json_of(sink), format);
  return Error{ErrorCode::invalid_spec, "the spec has errors", {}, diag::to_json(sink)};
}

}  // namespace

void add_deny(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--deny", [](const std::string&) { denied() = true; }, "Treat warnings as errors")
      ->type_name("warnings")
      ->check(CLI::IsMember({"warnings"}));
}

bool denies_warnings() { return denied(); }

void tell_denied() {
  tell(fmt::format("{}: warnings are treated as errors (--deny warnings)\n",
                   error_paint()(support::Style::error, "error")));
}

SpecOutcome analyze_spec(std::shared_ptr<const support::Source> source,
                         const sema::Bindings& bindings, Format format,
                         const std::map<std::string, std::string>& inputs) {
  const auto sink = std::make_shared<diag::Sink>(*source);
  auto analyses = std::make_shared<masks::MaskAnalyses>();
  std::set<std::string, std::less<>> replaced;
  for (const auto& [name, text] : inputs) replaced.insert(name);
  std::optional<ir::Attention> attention =
      driver::front_end(*source, bindings, *sink, analyses.get(), replaced);
  print_diagnostics(diag::to_text(*sink, error_paint()));
  std::optional<Error> error = refusal(*sink, format);
  if (error) return {std::nullopt, kSpecHasErrors, std::move(error)};
  return {
      Spec{std::move(source), bindings, std::move(*attention), std::move(analyses), sink}, kOk, {}};
}

std::vector<Spec> analyze_all_sizes(const std::shared_ptr<const support::Source>& source,
                                    const sema::Bindings& bindings, Format format) {
  diag::Sink sink(*source);
  const auto analyses = std::make_shared<masks::MaskAnalyses>();
  std::vector<driver::Variant> variants =
      driver::front_end_of_all_sizes(*source, bindings, sink, analyses.get());
  print_diagnostics(diag::to_text(sink, error_paint()));
  if (refusal(sink, format)) return {};
  std::vector<Spec> specs;
  for (driver::Variant& variant : variants) {
    specs.push_back({source, std::move(variant.bindings), std::move(variant.attention), analyses});
  }
  return specs;
}

std::optional<Error> report_denied(const diag::Sink& sink, Format format) {
  if (!denies_warnings() || sink.sorted().empty()) return std::nullopt;
  tell_denied();
  print_data(diag::json_of(sink), format);
  return Error{ErrorCode::invalid_spec, "the spec has warnings", {}, diag::to_json(sink)};
}

Status check_is_not_input(const std::string& output, const std::string& input,
                          std::vector<std::string> notes) {
  std::error_code none;  // a path that does not exist is fine
  if (!fs::equivalent(output, input, none)) return {};
  return Error{ErrorCode::invalid_argument, fmt::format("-o {}: this is the input file", output),
               std::move(notes)};
}

namespace {

// What a file of this name holds, if it is certainly no spec; else "".
std::string_view other_kind(std::string_view path) {
  struct Kind {
    std::string_view end, what;
  };
  static constexpr Kind kKinds[] = {{".md", "a Markdown text"},
                                    {".rst", "a text"},
                                    {".py", "Python"},
                                    {".ipynb", "a notebook"},
                                    {".npy", "an array"},
                                    {".npz", "an archive of arrays"},
                                    {".pt", "tensors of PyTorch"},
                                    {".safetensors", "tensors"},
                                    {".cu", "CUDA C++"},
                                    {".cuh", "CUDA C++"},
                                    {".cpp", "C++"},
                                    {".h", "C++"},
                                    {".svg", "a picture"},
                                    {".png", "a picture"},
                                    {".html", "a page"}};
  const auto* found =
      std::ranges::find_if(kKinds, [&](const Kind& kind) { return path.ends_with(kind.end); });
  return found == std::end(kKinds) ? std::string_view() : found->what;
}

Error no_spec(const std::string& path, std::string_view what) {
  const bool is_python = path.ends_with(".py");
  return {ErrorCode::invalid_argument,
          fmt::format("{}: this is {}, not a spec", support::printable(path), what),
          {is_python ? "a spec is in a file NAME.attn; `attn.compile` of the Python package takes "
                       "Python's functions"
                     : "a spec is in a file NAME.attn"}};
}

// "--bind Sq=64" for a path `Sq=64`; "" for others.
std::string as_binding(const std::string& path) {
  const std::string name = path.substr(0, path.find('='));
  const bool is_size = name != path && (name == "D" || ir::parse_dim(name).has_value());
  return is_size ? "--bind " + path : "";
}

// A file of that name.
Result<support::Source> read_file(const std::string& path) {
  Result<support::Source> source = support::Source::read(path);
  if (const std::string_view what = other_kind(path); source.ok() && !what.empty()) {
    return no_spec(path, what);
  }
  std::error_code none;
  if (source.ok()) {
    if (plan::begins_plan(source->text())) return plan_instead(path, *source);
    tell_detail(fmt::format("read {}, {} bytes", source->name(), source->text().size()));
    return source;
  }
  std::string meant = as_binding(path);
  if (meant.empty() && path != "-" && !fs::exists(path, none)) meant = similar_spec(path);
  if (meant.empty()) return source;
  Error error = source.error();
  error.notes.push_back(fmt::format("did you mean {}?", support::quoted(meant)));
  return error;
}

}  // namespace

Result<support::Source> read_source(const std::string& path, const Edits& edits) {
  ATTN_ASSIGN(support::Source source, read_file(path == "-" ? path : resolved_spec(path)));
  return edited(std::move(source), edits);
}

Result<support::Source> read_own_source(const std::string& path) {
  Result<support::Source> source = read_file(path);
  if (source.ok() || path == "-") return source;
  const std::string other = resolved_spec(path);
  if (other == path) return source;
  return Error{ErrorCode::io,
               source.error().message,
               {fmt::format("the name means {}: give that, or a copy of it", other)}};
}

SpecOutcome read_spec(const std::string& path, const sema::Bindings& bindings, Format format,
                      const std::map<std::string, std::string>& inputs, const Edits& edits) {
  Result<support::Source> source = read_source(path, edits);
  if (!source.ok()) return {std::nullopt, report(source.error(), format), source.error()};
  return analyze_spec(std::make_shared<const support::Source>(std::move(*source)), bindings, format,
                      inputs);
}

bool is_plan(const std::string& path) {
  if (path == "-") return false;
  if (path.ends_with(".attnplan")) return true;
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return false;  // a pipe can be read only once
  std::ifstream file(path, std::ios::binary);
  std::string begin(16, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return plan::begins_plan(
      std::string_view(begin).substr(0, static_cast<std::size_t>(file.gcount())));
}

std::shared_ptr<const support::Source> source_of_plan(const std::string& path,
                                                      const plan::Plan& plan) {
  const std::string_view name = is_json_spec(plan.spec_text) ? "spec.attn.json" : "spec.attn";
  return std::make_shared<const support::Source>(fmt::format("{}:{}", path, name), plan.spec_text);
}

SpecOutcome spec_of_plan(const std::string& path, const plan::Plan& plan, Format format,
                         const std::map<std::string, std::string>& inputs) {
  std::shared_ptr<const support::Source> source = source_of_plan(path, plan);
  const Status alone = driver::check_stands_alone(*source);
  if (!alone.ok()) return {std::nullopt, report(alone.error(), format), alone.error()};
  return analyze_spec(std::move(source), plan.bindings, format, inputs);
}

Result<std::vector<std::string>> spec_paths(const std::vector<std::string>& specs,
                                            const std::string& folder) {
  if (specs.empty() == folder.empty()) {
    return {ErrorCode::invalid_argument, "give either SPEC... or --all DIR"};
  }
  if (!folder.empty()) return specs_in(folder);
  std::vector<std::string> paths;
  for (const std::string& spec : specs) {
    std::error_code none;
    if (!fs::is_directory(spec, none)) {
      paths.push_back(spec);
      continue;
    }
    ATTN_ASSIGN(const std::vector<std::string> inside, specs_in(spec));
    paths.insert(paths.end(), inside.begin(), inside.end());
  }
  return paths;
}

Result<std::vector<std::string>> specs_below(const std::vector<std::string>& given) {
  std::vector<std::string> paths;
  for (const std::string& path : given) {
    std::error_code none;
    if (fs::is_directory(path, none)) {
      ATTN_RETURN_IF_ERROR(add_specs_below(path, paths));
    } else {
      paths.push_back(path);
    }
  }
  return paths;
}

}  // namespace attn::tools
