#include <fmt/format.h>

#include <algorithm>

#include "compiler/driver/driver.h"
#include "tools/command.h"
#include "tools/report.h"
#include "tools/spec.h"

namespace attn::tools {
namespace {

struct Options {
  std::vector<std::string> specs;
  sema::Bindings bindings;
  Format format = Format::text;
};

// "ok: specs/x.attn: x, 2 masks, B=2 Hq=8 ... (open: Sq)"
std::string summary(const std::string& path, const ir::Attention& attention) {
  std::string bound, open;
  for (const ir::Dim dim : ir::kDims) {
    if (const auto size = attention.dims.get(dim)) {
      bound += fmt::format(" {}={}", to_string(dim), *size);
    } else {
      open += fmt::format("{}{}", open.empty() ? "" : " ", to_string(dim));
    }
  }
  return fmt::format("ok: {}: {} {}{}{}", path, attention.name, to_string(attention.dtype), bound,
                     open.empty() ? "" : ", open: " + open);
}

Json failure(const std::string& path, const Error& error) {
  return {{"file", path}, {"ok", false}, {"error", error_json(error, nullptr)}};
}

// Checks one spec: its entry for --format json, and its exit code.
std::pair<Json, int> check(const std::string& path, const Options& options) {
  const Result<support::Source> source = support::Source::read(path);
  if (!source.ok()) {
    fmt::print(stderr, "{}", error_text(source.error(), nullptr));
    return {failure(path, source.error()), exit_code(source.error().code)};
  }
  diag::Sink sink(*source);
  const std::optional<ir::Attention> attention = driver::front_end(*source, options.bindings, sink);
  if (options.format == Format::text) {
    fmt::print(stderr, "{}", diag::to_text(sink));
    if (attention) fmt::print("{}\n", summary(source->name(), *attention));
  }
  Json entry = {{"file", source->name()}, {"ok", attention.has_value()}};
  if (attention) entry["name"] = attention->name;
  entry.update(Json::parse(diag::to_json(sink)));
  return {std::move(entry), attention ? kOk : kSpecHasErrors};
}

int run(const Options& options) {
  Json entries = Json::array();
  int worst = kOk;
  for (const std::string& path : options.specs) {
    auto [entry, code] = check(path, options);
    entries.push_back(std::move(entry));
    worst = std::max(worst, code);
  }
  if (options.format == Format::json) print_json({{"specs", entries}});
  return worst;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("check", "Report every error in specs");
  command->add_option("specs", options->specs, "Files (.attn, .attn.json), or - for standard input")
      ->type_name("SPEC...")
      ->required();
  add_bind(*command, options->bindings);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
