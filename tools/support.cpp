#include "compiler/driver/support.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <mutex>
#include <thread>

#include "compiler/masks/mask_analysis.h"
#include "compiler/support/text.h"
#include "runtime/cudnn/library.h"
#include "runtime/targets/targets.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/support_engines.h"
#include "tools/table.h"
#include "tools/target_option.h"
#include "tools/words.h"

namespace attn::tools {
namespace support_command {
namespace {

using driver::Verdict;

struct Options {
  std::vector<std::string> specs;
  std::string folder;
  std::string targets = "all";
  std::vector<std::string> cudnn_folders;
  std::string tier = "build";
  std::string lowering{planner::kAnyLowering};
  target::Rewrites rewrites;
  BuildLimits limits{};
  unsigned jobs = 0;
  sema::Bindings bindings;
  bool gradients = false;
  bool engines = false;
  std::string format = "text";
};

// One column of the matrix: a target and a cuDNN.
struct Place {
  plan::Target target;
  std::string cudnn_folder;
  std::string title;
};

struct Row {
  std::string name;
  Spec spec;
  std::vector<Verdict> verdicts;  // by place
};

Result<std::vector<plan::Target>> targets_of(const Options& options) {
  std::vector<plan::Target> targets;
  std::vector<std::string> names;
  if (options.targets == "all") {
    names = targets::target_names();
  } else {
    names = CLI::detail::split(options.targets, ',');
  }
  for (const std::string& name : names) {
    ATTN_ASSIGN(plan::Target target, find_target(name, ""));
    targets.push_back(std::move(target));
  }
  return targets;
}

// Ordered by cuDNN, then by target. Titles include the cuDNN version if there are several.
Result<std::vector<Place>> places_of(const Options& options) {
  ATTN_ASSIGN(const std::vector<plan::Target> targets, targets_of(options));
  std::vector<std::string> folders = options.cudnn_folders;
  if (folders.empty()) folders.emplace_back();
  std::vector<Place> places;
  for (const std::string& folder : folders) {
    std::string version;
    if (options.tier != "rules" && folders.size() > 1) {
      ATTN_ASSIGN(const std::int64_t number,
                  worker::cudnn_version(worker_options(folder, options.limits)));
      version = " cuDNN " + cudnn::version_text(number);
    }
    for (const plan::Target& target : targets) {
      places.push_back({target, folder, target.name + version});
    }
  }
  return places;
}

// Adds one row per spec; of a spec with several sizes only the first is tested. Returns the exit
// code of the first error, which was reported.
int add_rows(const std::vector<std::string>& paths, const Options& options, Format format,
             std::vector<Row>& rows) {
  for (const std::string& path : paths) {
    SpecOutcome outcome = read_spec(path, options.bindings, format);
    if (!outcome.spec) return outcome.exit_code;
    rows.push_back({outcome.spec->attention.name, std::move(*outcome.spec), {}});
  }
  return kOk;
}

Verdict judge(const Spec& spec, const Place& place, const Options& options, bool gradients,
              masks::MaskAnalyses* analyses = nullptr) {
  driver::CompileOptions how;
  how.target = place.target;
  how.worker = worker_options(place.cudnn_folder, options.limits);
  how.lowering = options.lowering;
  how.rewrites = options.rewrites;
  how.analyses = analyses;
  const auto ask = gradients ? driver::judge_pair : driver::judge;
  return ask(spec.attention, *spec.source, spec.bindings, how, *driver::parse_tier(options.tier));
}

// For a training pair the reason begins with the direction.
std::string reason_of(const Verdict& verdict) {
  std::string words = driver::reason_of(*verdict.error);
  if (!verdict.direction) return words;
  return fmt::format("{}: {}", plan::to_string(*verdict.direction), words);
}

// ", or cudnn": engines that can express it too.
std::string others(const Verdict& verdict) {
  std::string text;
  for (const std::string& engine : verdict.other_engines) text += ", or " + engine;
  return text;
}

// What computes a program without cuDNN steps: "native", or "kernels" of another engine.
std::string kernels_of(const Verdict& verdict) {
  return planner::has_own_kernels(verdict.lowering) ? planner::engine_name_of(verdict.lowering)
                                                    : "kernels";
}

std::string cell(const Verdict& verdict) {
  switch (verdict.outcome) {
    case Verdict::Outcome::refused: return "no";
    case Verdict::Outcome::failed: return "failed";
    case Verdict::Outcome::served: break;
  }
  if (verdict.tier == driver::Tier::rules) return "maybe" + others(verdict);
  if (verdict.engine < 0) return kernels_of(verdict) + others(verdict);
  const bool usual = verdict.lowering == planner::strategies().front().name;
  return fmt::format("engine {}{}{}{}", verdict.engine, verdict.steps > 1 ? " + kernels" : "",
                     usual ? "" : fmt::format(" ({})", verdict.lowering), others(verdict));
}

// "no" and "failed" in red.
Table::Cell painted(const Verdict& verdict) {
  if (verdict.outcome == Verdict::Outcome::served) return cell(verdict);
  return {cell(verdict), support::Style::error};
}

// The distinct reasons of one row, each with the titles of its columns.
std::vector<std::pair<std::string, std::string>> reasons(const Row& row,
                                                         const std::vector<Place>& places) {
  std::vector<std::pair<std::string, std::string>> list;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!row.verdicts[i].error) continue;
    const std::string words = reason_of(row.verdicts[i]);
    const auto found = std::ranges::find(list, words, &std::pair<std::string, std::string>::first);
    if (found == list.end()) {
      list.emplace_back(words, places[i].title);
    } else {
      found->second += ", " + places[i].title;
    }
  }
  return list;
}

std::size_t served(const std::vector<Row>& rows, std::size_t place) {
  return static_cast<std::size_t>(std::ranges::count_if(rows, [&](const Row& row) {
    return row.verdicts[place].outcome == Verdict::Outcome::served;
  }));
}

Json to_json(const Row& row, const std::vector<Place>& places) {
  static constexpr std::string_view kOutcomes[] = {"served", "refused", "failed"};
  Json cells = Json::array();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Verdict& verdict = row.verdicts[i];
    Json& json = cells.emplace_back();
    json = {{"target", places[i].target.name},
            {"outcome", kOutcomes[static_cast<std::size_t>(verdict.outcome)]},
            {"tier", to_string(verdict.tier)}};
    if (verdict.direction) json["direction"] = plan::to_string(*verdict.direction);
    if (verdict.cudnn_version != 0) json["cudnn"] = cudnn::version_text(verdict.cudnn_version);
    if (!verdict.lowering.empty()) json["strategy"] = verdict.lowering;
    if (!verdict.error) json["other_engines"] = verdict.other_engines;
    if (verdict.engine >= 0) json["engine"] = verdict.engine;
    if (verdict.tier == driver::Tier::build && !verdict.error) {
      json["workspace_bytes"] = verdict.workspace_bytes;
    }
    if (verdict.error) {
      json["reason"] = reason_of(verdict);
      json["error"] = error_json(*verdict.error, row.spec.source.get());
    }
  }
  return {{"spec", row.name}, {"file", row.spec.source->name()}, {"targets", std::move(cells)}};
}

// Prints rows as soon as their cells are known, in order: as text, as Markdown, or as lines of
// JSON. JSON is printed at the end.
class Printer {
 public:
  Printer(const Options& options, const std::vector<Row>& rows, const std::vector<Place>& places)
      : options_(options),
        rows_(rows),
        places_(places),
        left_(rows.size(), places.size()),
        table_(columns(), widths(), output_paint()) {
    if (options_.format == "text") put_at_once(table_.titles());
    if (options_.format == "markdown") put_at_once(markdown_titles());
  }

  // Notes that one more cell of row `row` is known.
  void cell_done(std::size_t row) {
    --left_[row];
    for (; next_ < rows_.size() && left_[next_] == 0; ++next_) print(rows_[next_]);
  }

  // What follows the last row.
  void finish() {
    if (options_.format == "json") {
      Json specs = Json::array();
      for (const Row& row : rows_) specs.push_back(to_json(row, places_));
      print_json({{"specs", std::move(specs)}});
    }
    if (options_.format == "text") put_at_once(table_.row(totals()) + refusals("{} ({}): {}\n"));
    if (options_.format == "markdown") put_at_once(refusals("- **{}** ({}): {}\n"));
  }

 private:
  void print(const Row& row) {
    if (options_.format == "jsonl") print_json_line(to_json(row, places_));
    if (options_.format == "text") put_at_once(table_.row(cells_of(row)));
    if (options_.format == "markdown") put_at_once(markdown_row(row));
  }

  std::vector<Table::Column> columns() const {
    std::vector<Table::Column> columns = {{"spec"}};
    for (const Place& place : places_) columns.push_back({place.title});
    return columns;
  }

  // The names are known; of the cells, what most of them need.
  std::vector<std::size_t> widths() const {
    constexpr std::string_view kUsual = "engine 2 + kernels";
    const std::size_t usual = options_.tier == "rules" ? width_of_rules() : kUsual.size();
    std::vector<std::size_t> widths(places_.size() + 1, usual);
    widths[0] = total_label().size();
    for (const Row& row : rows_) widths[0] = std::max(widths[0], shown(row.name).size());
    return widths;
  }

  // Width of a cell that names one engine more.
  static std::size_t width_of_rules() {
    std::size_t longest = 0;
    for (const engines::Engine& engine : engines::engines()) {
      longest = std::max(longest, engine.name.size());
    }
    return std::string_view("maybe, or ").size() + longest;
  }

  static std::vector<Table::Cell> cells_of(const Row& row) {
    std::vector<Table::Cell> cells = {row.name};
    for (const Verdict& verdict : row.verdicts) cells.push_back(painted(verdict));
    return cells;
  }

  std::string total_label() const { return support::count_of(rows_.size(), "spec"); }

  std::vector<Table::Cell> totals() const {
    std::vector<Table::Cell> cells = {total_label()};
    for (std::size_t i = 0; i < places_.size(); ++i) {
      cells.emplace_back(fmt::format("{}", served(rows_, i)));
    }
    return cells;
  }

  std::string markdown_titles() const {
    std::string titles = "| spec |", line = "|---|";
    for (const Place& place : places_) {
      titles += fmt::format(" {} |", place.title);
      line += "---|";
    }
    return titles + "\n" + line + "\n";
  }

  static std::string markdown_row(const Row& row) {
    std::string text = fmt::format("| {} |", row.name);
    for (const Verdict& verdict : row.verdicts) text += fmt::format(" {} |", cell(verdict));
    return text + "\n";
  }

  // A blank line, and a line in this format for each reason.
  std::string refusals(const char* format) const {
    std::string text;
    for (const Row& row : rows_) {
      for (const auto& [words, where] : reasons(row, places_)) {
        text += fmt::format(fmt::runtime(format), row.name, where, words);
      }
    }
    return text.empty() ? "" : "\n" + text;
  }

  const Options& options_;
  const std::vector<Row>& rows_;
  const std::vector<Place>& places_;
  std::vector<std::size_t> left_;  // cells of each row that are not known
  std::size_t next_ = 0;           // the row to print next
  GrowingTable table_;
};

// Calls `work(i)` for i < count, in parallel; `name(i)` says what it is.
void in_parallel(std::size_t count, const Options& options,
                 const std::function<std::string(std::size_t)>& name,
                 const std::function<void(std::size_t)>& work) {
  Progress progress("support", count);
  std::atomic<std::size_t> done = 0;
  std::atomic<std::size_t> next = 0;
  const auto take = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      progress.show(done, name(i));
      work(i);
      ++done;
    }
  };
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  const unsigned jobs = options.jobs != 0 ? options.jobs : cores;
  std::vector<std::jthread> threads;
  for (unsigned i = 1; i < jobs; ++i) threads.emplace_back(take);
  take();
}

// Computes the cells in parallel; each uses its own worker processes.
void fill(std::vector<Row>& rows, const std::vector<Place>& places, const Options& options,
          Printer& printer) {
  for (Row& row : rows) row.verdicts.resize(places.size());
  std::mutex mutex;  // of the printer
  const auto name = [&](std::size_t i) {
    return fmt::format("{} on {}", rows[i / places.size()].name, places[i % places.size()].title);
  };
  in_parallel(rows.size() * places.size(), options, name, [&](std::size_t i) {
    Row& row = rows[i / places.size()];
    Verdict verdict = judge(row.spec, places[i % places.size()], options, options.gradients);
    const std::lock_guard lock(mutex);
    row.verdicts[i % places.size()] = std::move(verdict);
    printer.cell_done(i / places.size());
  });
}

// The largest exit code of all cells.
int exit_code_of(const std::vector<Row>& rows) {
  int code = kOk;
  for (const Row& row : rows) {
    for (const Verdict& verdict : row.verdicts) {
      if (verdict.outcome != Verdict::Outcome::served) {
        code = std::max(code, attn::exit_code(verdict.error->code));
      }
    }
  }
  return code;
}

// The table of engines: spec by spec, whose targets share what is known of its masks.
EnginesTable engines_of(const std::vector<Row>& rows, const std::vector<Place>& places,
                        const Options& options) {
  EnginesTable table;
  for (const Place& place : places) table.targets.push_back(place.title);
  table.rows.resize(rows.size());
  const auto name = [&](std::size_t i) { return rows[i].name; };
  in_parallel(rows.size(), options, name, [&](std::size_t i) {
    masks::MaskAnalyses analyses;
    table.rows[i].spec = rows[i].name;
    table.rows[i].file = rows[i].spec.source->name();
    for (const Place& place : places) {
      table.rows[i].targets.push_back({judge(rows[i].spec, place, options, false, &analyses),
                                       judge(rows[i].spec, place, options, true, &analyses)});
    }
  });
  return table;
}

int print_engines(const EnginesTable& table, const Options& options) {
  if (options.format == "text") put_at_once(table.to_text(output_paint()));
  if (options.format == "markdown") put_at_once(table.to_markdown());
  if (options.format == "json") print_json(table.to_json());
  if (options.format == "jsonl") {
    const Json all = table.to_json();
    for (const Json& spec : all["specs"]) print_json_line(spec);
  }
  return table.exit_code();
}

Format format_of(const Options& options) {
  if (options.format == "jsonl") return Format::json_lines;
  return options.format == "json" ? Format::json : Format::text;
}

int run(const Options& options) {
  const Format format = format_of(options);
  const Result<std::vector<Place>> places = places_of(options);
  if (!places.ok()) return report(places.error(), format);
  const Result<std::vector<std::string>> paths = spec_paths(options.specs, options.folder);
  if (!paths.ok()) return report(paths.error(), format);
  std::vector<Row> rows;
  if (const int code = add_rows(*paths, options, format, rows); code != kOk) return code;
  if (options.engines) return print_engines(engines_of(rows, *places, options), options);
  Printer printer(options, rows, *places);
  fill(rows, *places, options, printer);
  printer.finish();
  return exit_code_of(rows);
}

}  // namespace
}  // namespace support_command

void add_support(CLI::App& app, Action& action) {
  using namespace support_command;
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("support", "Show which GPUs (and cuDNN versions) can run which specs");
  command->add_option("specs", options->specs, "Files (.attn, .attn.json)")->type_name("SPEC...");
  command->add_option("--all", options->folder, "Every spec in this folder")->type_name("DIR");
  command->add_option("--target", options->targets, "GPUs: all built-in targets, or a list")
      ->type_name("all|NAME[,NAME]")
      ->check(CLI::Suggest(target_words({"all"})));
  command
      ->add_option("--cudnn", options->cudnn_folders,
                   "Folder of a cuDNN library to test (repeatable, one column each)")
      ->type_name("DIR");
  command
      ->add_option("--tier", options->tier,
                   "Depth of the test: rules (no cuDNN), cuDNN's heuristics, or a build")
      ->type_name("rules|heuristics|build")
      ->check(CLI::IsMember({"rules", "heuristics", "build"}));
  add_strategy(*command, options->lowering, options->rewrites);
  add_build_limits(*command, options->limits);
  command
      ->add_option("--jobs", options->jobs,
                   "Number of parallel jobs; 0: as many as there are cores")
      ->type_name("N");
  add_bind(*command, options->bindings);
  add_deny(*command);
  command->add_flag("--grad", options->gradients,
                    "Also test the gradients; cells show the backward");
  command
      ->add_flag("--engines", options->engines,
                 "Cells show the engines that are taken, forward and backward")
      ->excludes("--grad");
  command->add_option("--format", options->format, "Output format")
      ->type_name("text|json|jsonl|markdown")
      ->check(CLI::IsMember({"text", "json", "jsonl", "markdown"}));
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
