#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/diag/diagnostics.h"
#include "compiler/diag/render_json.h"
#include "compiler/driver/driver.h"
#include "runtime/base/replace_file.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/report.h"
#include "tools/spec.h"

namespace attn::tools {
namespace {

using support::Span;

struct AppliedFix {
  std::string title;     // "write `window`"
  support::Place place;  // of the diagnostic, in the text before
};

struct Fixed {
  std::string text;
  std::vector<AppliedFix> applied;
};

// The edits in the sink's source; nothing if one is in another file.
std::optional<std::vector<diag::Edit>> own_edits(const diag::Sink& sink, const diag::Fix& fix) {
  std::vector<diag::Edit> edits;
  for (const diag::Edit& edit : fix.edits) {
    const diag::Location at = sink.locate(edit.span);
    if (at.source != &sink.source()) return std::nullopt;
    edits.push_back({at.span, edit.text});
  }
  return edits;
}

// Whether one of them touches another: the order of two at one place is not known.
bool touch(const std::vector<diag::Edit>& edits, const std::vector<diag::Edit>& others) {
  return std::ranges::any_of(edits, [&](const diag::Edit& edit) {
    return std::ranges::any_of(others, [&](const diag::Edit& other) {
      return edit.span.begin <= other.span.end && other.span.begin <= edit.span.end;
    });
  });
}

// The text of the sink's source with the fix of each diagnostic that has just one: whole fixes
// whose edits are all in this source, and overlap none of those applied before.
Fixed apply_fixes(const diag::Sink& sink) {
  Fixed fixed{std::string(sink.source().text()), {}};
  std::vector<diag::Edit> all;
  for (const diag::Diagnostic& diagnostic : sink.sorted()) {
    if (diagnostic.fixes.size() != 1) continue;
    const diag::Fix& fix = diagnostic.fixes.front();
    const auto edits = own_edits(sink, fix);
    if (!edits || edits->empty() || touch(*edits, all)) continue;
    all.insert(all.end(), edits->begin(), edits->end());
    const diag::Location at = sink.locate(diagnostic.span);
    fixed.applied.push_back({fix.title, at.source->place(at.span.begin)});
  }
  std::ranges::sort(all, std::greater(), [](const diag::Edit& edit) { return edit.span.begin; });
  for (const diag::Edit& edit : all) {
    fixed.text.replace(edit.span.begin, edit.span.end - edit.span.begin, edit.text);
  }
  return fixed;
}

}  // namespace

namespace check_command {
namespace {

struct Options {
  std::vector<std::string> specs;
  sema::Bindings bindings;
  std::string format = "text";
  bool fixes = false;
};

// The result of checking one spec.
struct Checked {
  std::string path;
  std::unique_ptr<const support::Source> source;  // null if it could not be read
  std::unique_ptr<diag::Sink> sink;
  driver::CheckedSizes sizes;
  std::optional<std::size_t> functions;  // of a library
  std::vector<AppliedFix> fixed;         // with --fix
  std::optional<Error> error;            // not read, or not written

  bool is_denied() const {
    return sink && denies_warnings() && !sink->has_errors() && !sink->sorted().empty();
  }
  bool ok() const { return (sizes.first || functions) && !is_denied(); }
  int exit_code() const {
    if (error) return attn::exit_code(error->code);
    return ok() ? kOk : kSpecHasErrors;
  }
};

// "specs/x.attn: x, 2 masks, B=2 Hq=8 ... (open: Sq)"
std::string summary(const std::string& path, const ir::Attention& attention) {
  std::string bound, open;
  for (const ir::Dim dim : ir::kDims) {
    if (const auto size = attention.dims.get(dim)) {
      bound += fmt::format(" {}={}", to_string(dim), *size);
    } else {
      open += fmt::format("{}{}", open.empty() ? "" : " ", to_string(dim));
    }
  }
  return fmt::format("{}: {} {}{}{}", path, attention.name, to_string(attention.dtype), bound,
                     open.empty() ? "" : ", open: " + open);
}

// Says which checks were skipped because of the work limit; "" if none.
std::string stopped_words(const Checked& checked) {
  const driver::CheckedSizes& sizes = checked.sizes;
  if (!checked.sink->is_stopped()) return "";
  if (sizes.first && sizes.looked_at < sizes.plans) {
    return fmt::format(
        "  stopped   work limit reached: {} of {} combinations of sizes were checked\n",
        sizes.looked_at, sizes.plans);
  }
  return "  stopped   work limit reached: there may be more wrong indexes, integers and masks than "
         "are reported\n";
}

// Whether a search was stopped before it found anything: little speaks for more then.
bool finds_nothing(const Checked& checked) {
  const driver::CheckedSizes& sizes = checked.sizes;
  return checked.sink->is_stopped() && checked.sink->sorted().empty() &&
         sizes.looked_at == sizes.plans;
}

// Checks a text, again after --fix.
void check(support::Source source, const sema::Bindings& bindings, Checked& checked) {
  checked.source = std::make_unique<const support::Source>(std::move(source));
  checked.sink = std::make_unique<diag::Sink>(*checked.source);
  checked.sizes = {};
  checked.functions = driver::check_library(*checked.source, *checked.sink);
  if (!checked.functions && !checked.sink->has_errors()) {
    checked.sizes = driver::check_all_sizes(*checked.source, bindings, *checked.sink);
  }
}

// Applies fixes until none is left. Those that undo one another leave the text as it was.
void fix(const sema::Bindings& bindings, Checked& checked) {
  const std::string name = checked.source->name(), before(checked.source->text());
  std::set<std::string> seen = {before};
  for (;;) {
    Fixed fixed = apply_fixes(*checked.sink);
    if (fixed.applied.empty()) return;
    if (!seen.insert(fixed.text).second) {
      checked.fixed.clear();
      return check({name, before}, bindings, checked);
    }
    checked.fixed.insert(checked.fixed.end(), fixed.applied.begin(), fixed.applied.end());
    check({name, std::move(fixed.text)}, bindings, checked);
  }
}

Checked check(const std::string& path, const Options& options) {
  Checked checked;
  checked.path = path;
  Result<support::Source> source = options.fixes ? read_own_source(path) : read_source(path);
  if (!source.ok()) {
    checked.error = source.error();
    return checked;
  }
  check(std::move(*source), options.bindings, checked);
  if (options.fixes) fix(options.bindings, checked);
  if (checked.fixed.empty() || path == "-") return checked;
  if (const Status written = replace_file(path, checked.source->text()); !written.ok()) {
    checked.error = written.error();
  }
  return checked;
}

// What --fix did.
void print_fixes(const Checked& checked) {
  for (const AppliedFix& fix : checked.fixed) {
    tell(fmt::format("{}: {}:{}:{}: {}\n", error_paint()(support::Style::good, "fixed"),
                     checked.source->name(), fix.place.line, fix.place.column, fix.title));
  }
}

void print_text(const Checked& checked, bool prints_source) {
  print_fixes(checked);
  if (prints_source && checked.source) fmt::print("{}", checked.source->text());
  if (checked.sink) print_diagnostics(diag::to_text(*checked.sink, error_paint()));
  if (checked.is_denied()) tell_denied();
  if (checked.sink && !checked.ok()) tell(stopped_words(checked));
  if (!checked.ok() || prints_source) return;
  if (checked.sizes.first) {
    put_summary(
        fmt::format("{}: {}{}\n", output_paint()(support::Style::good, "ok"),
                    summary(checked.source->name(), *checked.sizes.first),
                    checked.sizes.plans > 1 ? fmt::format(", {} plans", checked.sizes.plans) : ""));
  }
  if (finds_nothing(checked))
    tell_detail("the search for wrong values stopped at its work limit");
  else
    put_summary(stopped_words(checked));
  if (checked.functions) {
    put_summary(fmt::format("{}: {}: a library of {} function{}\n",
                            output_paint()(support::Style::good, "ok"), checked.source->name(),
                            *checked.functions, *checked.functions == 1 ? "" : "s"));
  }
}

Json to_json(const Checked& checked, bool fixes) {
  if (checked.error) {
    return {{"file", checked.path}, {"ok", false}, {"error", error_json(*checked.error, nullptr)}};
  }
  Json entry = {{"file", checked.source->name()}, {"ok", checked.ok()}};
  if (checked.sizes.first) entry["name"] = checked.sizes.first->name;
  if (checked.sizes.plans > 1) entry["plans"] = checked.sizes.plans;
  if (checked.functions) entry["functions"] = *checked.functions;
  if (checked.sink->is_stopped()) entry["stopped"] = true;
  for (const AppliedFix& fix : checked.fixed) {
    entry["fixed"].push_back(
        {{"title", fix.title}, {"line", fix.place.line}, {"column", fix.place.column}});
  }
  if (fixes && checked.path == "-") entry["text"] = checked.source->text();
  entry.update(diag::json_of(*checked.sink));
  return entry;
}

std::string to_sarif(const std::vector<Checked>& all) {
  std::vector<const diag::Sink*> sinks;
  std::vector<std::string> failures;
  for (const Checked& checked : all) {
    if (checked.sink) sinks.push_back(checked.sink.get());
    if (checked.error) failures.push_back(checked.error->message);
  }
  return diag::to_sarif(sinks, failures, ATTN_VERSION);
}

// "45 specs: 43 ok, 2 with errors, 3 with warnings"
std::string totals_text(const std::vector<Checked>& all) {
  std::size_t good = 0, warned = 0;
  for (const Checked& checked : all) {
    good += checked.ok() ? 1 : 0;
    warned += checked.ok() && !checked.sink->sorted().empty() ? 1 : 0;
  }
  std::string text = fmt::format("{} specs: {} ok", all.size(), good);
  if (warned > 0) text += fmt::format(" ({} with warnings)", warned);
  if (good < all.size()) text += fmt::format(", {} not", all.size() - good);
  return text;
}

int run(const Options& options) {
  const Format format = options.format == "json" ? Format::json : Format::text;
  const auto paths = specs_below(options.specs);
  if (!paths.ok()) return report(paths.error(), format);
  std::vector<Checked> all;
  int worst = kOk;
  Progress progress("check", paths->size());
  for (std::size_t i = 0; i < paths->size(); ++i) {
    const std::string& path = (*paths)[i];
    progress.show(i, path);
    all.push_back(check(path, options));
    worst = std::max(worst, all.back().exit_code());
    if (all.back().error) print_diagnostics(error_text(*all.back().error, nullptr, error_paint()));
    if (options.format == "text") print_text(all.back(), options.fixes && path == "-");
  }
  if (options.format == "text" && all.size() > 1) tell_note(totals_text(all));
  if (options.format == "json") {
    Json entries = Json::array();
    for (const Checked& checked : all) entries.push_back(to_json(checked, options.fixes));
    print_json({{"specs", entries}});
  }
  if (options.format == "sarif") fmt::print("{}", to_sarif(all));
  return worst;
}

void add_formats(CLI::App& command, std::string& format) {
  command.add_option("--format", format, "Output format")
      ->type_name("text|json|sarif")
      ->check(CLI::IsMember({"text", "json", "sarif"}));
}

}  // namespace
}  // namespace check_command

void add_check(CLI::App& app, Action& action) {
  using namespace check_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("check", "Check specs and report all errors");
  command
      ->add_option("specs", options->specs,
                   "Files (.attn, .attn.json), folders of them, searched recursively, or - for "
                   "standard input")
      ->type_name("SPEC|DIR...")
      ->required();
  add_bind(*command, options->bindings);
  command->add_flag("--fix", options->fixes,
                    "Apply the fixes that diagnostics have; of standard input, print the result");
  add_deny(*command);
  add_formats(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
