#include "tools/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "compiler/driver/driver.h"
#include "compiler/driver/imports.h"
#include "runtime/base/spec_form.h"
#include "runtime/plan/container.h"

namespace attn::tools {
namespace {

namespace fs = std::filesystem;

bool& denied() {
  static bool deny = false;
  return deny;
}

bool is_spec_name(std::string_view name) {
  return name.ends_with(".attn") || name.ends_with(".attn.json");
}

Error io_error(const std::string& folder, const std::error_code& error) {
  return {ErrorCode::io, fmt::format("cannot read {}: {}", folder, error.message()), {}, {}};
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

// The error for diagnostics that were printed, if there are errors, or warnings with --deny
// warnings.
std::optional<Error> refusal(const diag::Sink& sink, Format format) {
  if (!sink.has_errors()) return report_denied(sink, format);
  const std::string diagnostics = diag::to_json(sink);
  if (format == Format::json) print_json(Json::parse(diagnostics));
  return Error{ErrorCode::invalid_spec, "the spec has errors", {}, diagnostics};
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

SpecOutcome analyze_spec(std::shared_ptr<const support::Source> source,
                         const sema::Bindings& bindings, Format format) {
  const auto sink = std::make_shared<diag::Sink>(*source);
  auto analyses = std::make_shared<passes::MaskAnalyses>();
  std::optional<ir::Attention> attention =
      driver::front_end(*source, bindings, *sink, analyses.get());
  print_diagnostics(diag::to_text(*sink));
  std::optional<Error> error = refusal(*sink, format);
  if (error) return {std::nullopt, kSpecHasErrors, std::move(error)};
  return {
      Spec{std::move(source), bindings, std::move(*attention), std::move(analyses), sink}, kOk, {}};
}

std::vector<Spec> analyze_all_sizes(const std::shared_ptr<const support::Source>& source,
                                    const sema::Bindings& bindings, Format format) {
  diag::Sink sink(*source);
  const auto analyses = std::make_shared<passes::MaskAnalyses>();
  std::vector<driver::Variant> variants =
      driver::front_end_of_all_sizes(*source, bindings, sink, analyses.get());
  print_diagnostics(diag::to_text(sink));
  if (refusal(sink, format)) return {};
  std::vector<Spec> specs;
  for (driver::Variant& variant : variants) {
    specs.push_back({source, std::move(variant.bindings), std::move(variant.attention), analyses});
  }
  return specs;
}

std::optional<Error> report_denied(const diag::Sink& sink, Format format) {
  if (!denies_warnings() || sink.sorted().empty()) return std::nullopt;
  fmt::print(stderr, "{}", kDenied);
  const std::string diagnostics = diag::to_json(sink);
  if (format == Format::json) print_json(Json::parse(diagnostics));
  return Error{ErrorCode::invalid_spec, "the spec has warnings", {}, diagnostics};
}

SpecOutcome read_spec(const std::string& path, const sema::Bindings& bindings, Format format) {
  Result<support::Source> source = support::Source::read(path);
  if (!source.ok()) return {std::nullopt, report(source.error(), format), source.error()};
  return analyze_spec(std::make_shared<const support::Source>(std::move(*source)), bindings,
                      format);
}

Status check_sizes(const ir::Attention& attention) {
  for (const ir::Dim dim : ir::kDims) {
    if (attention.dims.get(dim)) continue;
    return Error{ErrorCode::invalid_argument,
                 fmt::format("dimension {} of `{}` has no size", to_string(dim), attention.name),
                 {fmt::format("set it with --bind {}=1024", to_string(dim))},
                 {}};
  }
  return {};
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

SpecOutcome spec_of_plan(const std::string& path, const plan::Plan& plan, Format format) {
  std::shared_ptr<const support::Source> source = source_of_plan(path, plan);
  const Status alone = driver::check_stands_alone(*source);
  if (!alone.ok()) return {std::nullopt, report(alone.error(), format), alone.error()};
  return analyze_spec(std::move(source), plan.bindings, format);
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

}  // namespace attn::tools
