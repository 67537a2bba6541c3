#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench/timing.h"
#include "compiler/ir/branches.h"
#include "compiler/target/gpu.h"
#include "runtime/cuda/stream.h"
#include "runtime/cudnn/library.h"
#include "runtime/io/file.h"
#include "tools/cached.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/plans.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/subject.h"
#include "tools/table.h"
#include "tools/target_option.h"
#include "tools/timed.h"
#include "tools/words.h"
#include "tools/work.h"

namespace attn::tools {
namespace bench_command {
namespace {

struct Options {
  std::vector<std::string> specs;
  std::string folder;
  std::string direction;  // empty: the forward, or the backward of a plan file without one
  std::string json_file;
  std::string cudnn_folder;
  std::string lowering{planner::kAnyLowering};
  Tuning tuning;
  target::Rewrites rewrites;
  BuildLimits limits{};
  sema::Bindings bindings;
  InputTexts inputs;
  int iterations = 30;
  bool use_cache = false;
  bool device_only = false;
  Format format = Format::text;
};

// What is timed.
struct Directions {
  bool forward = false;
  bool backward = false;
};

// One direction of a spec: its times, or the error.
struct Row {
  std::string spec;
  plan::Direction direction = plan::Direction::forward;
  std::string dims;
  Json decision;                  // strategy and prediction of the plan
  std::optional<double> flops;    // of the visible scores, if known
  double peak = 0;                // TFLOP/s of the GPU's dense products of this type
  std::int64_t counted_rows = 1;  // every n-th row was counted
  std::string unknown;            // why flops is not known
  bench::Timing device;
  std::vector<bench::HostTiming> host;  // bare cuDNN, attn; empty with --device-only
  std::optional<Error> error;
};

std::string dims_of(const ir::Attention& attention) {
  std::string text;
  for (const ir::Dim dim : ir::kDims) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", to_string(dim), attention.dims[dim]);
  }
  return text;
}

// Calls per block such that all blocks keep the device busy for about two seconds: the queue must
// drain between blocks.
bench::HostTimingOptions host_timing(double milliseconds) {
  constexpr double kBudget = 2000;
  bench::HostTimingOptions options;
  const double calls = kBudget / (2 * options.blocks * milliseconds);
  options.calls = static_cast<int>(std::clamp(calls, 5.0, static_cast<double>(options.calls)));
  return options;
}

Status execute_once(TimedPlan& loaded) {
  ATTN_ASSIGN(auto binding, loaded.executable.bind(loaded.arguments()));
  ATTN_ASSIGN(const auto stream, cuda::Stream::create(loaded.executable.device()));
  ATTN_RETURN_IF_ERROR(binding.execute(stream.handle()));
  return stream.synchronize();
}

// Runs the forward and copies the outputs that the backward reads, in their memory layout.
Status save(TimedPlan& forward, TimedPlan& backward) {
  ATTN_RETURN_IF_ERROR(execute_once(forward));
  for (const plan::TensorInfo& info : backward.executable.program().tensors) {
    if (info.role != plan::TensorRole::saved) continue;
    ATTN_ASSIGN(const std::vector<std::byte> bytes, forward.tensors.download_bytes(info.name));
    ATTN_RETURN_IF_ERROR(backward.tensors.upload_bytes(info.name, bytes));
  }
  return {};
}

Status time_plan(TimedPlan& loaded, const Options& options, Row& row) {
  const execute::Arguments arguments = loaded.arguments();
  ATTN_ASSIGN(auto binding, loaded.executable.bind(arguments));
  bench::TimingOptions timing;
  timing.runs = options.iterations;
  timing.flop = row.flops.value_or(0);
  ATTN_ASSIGN(row.device, bench::time_on_device(loaded.executable.device(), binding, timing));
  if (options.device_only) return {};
  ATTN_ASSIGN(auto bare, bench::BareExecute::create(loaded.plan, loaded.options, arguments));
  ATTN_ASSIGN(row.host,
              bench::time_on_host(loaded.executable.device(), bench::bare_and_ours(bare, binding),
                                  host_timing(row.device.median_ms)));
  return {};
}

// Those of each of ir::attentions_of.
using ShownScores = std::vector<reference::Shown>;

// The visible scores, from the bound values.
Result<ShownScores> count_scores(const ir::Attention& attention, const TimedPlan& loaded) {
  ATTN_ASSIGN(const reference::Inputs values, bound_values(attention, loaded));
  ShownScores shown;
  for (const ir::Attention* each : ir::attentions_of(attention)) {
    ATTN_ASSIGN(shown.emplace_back(), reference::shown_scores(*each, values));
  }
  return shown;
}

// Counts FLOP; without a count the plan is timed all the same.
void count_flops(const ir::Attention& attention, const Result<ShownScores>& shown, Row& row) {
  if (!shown.ok()) {
    row.unknown = shown.error().message;
    return;
  }
  row.flops = shown_flops(attention, *shown, row.direction);
  row.counted_rows = std::ranges::max(*shown, {}, &reference::Shown::every).every;
}

void check_peak(const plan::Target& target, DType dtype, Row& row) {
  if (!row.flops || possible_flops(*row.flops, row.device.median_ms, target, dtype)) return;
  row.unknown = fmt::format(
      "{:.0f} TFLOP/s for all visible scores exceeds the peak of {} ({:.0f}): not all are computed",
      row.device.tflops, target.name, *peak_flops(target, dtype) * 1e-12);
  row.flops.reset();
  row.device.tflops = 0;
}

// Share of the peak of the GPU's data sheet; nothing if the FLOP count is not known.
std::optional<double> share_of_peak(const Row& row) {
  if (!row.flops || row.peak <= 0) return std::nullopt;
  return row.device.tflops / row.peak;
}

std::string_view word_of(plan::Direction direction) {
  return direction == plan::Direction::backward ? "bwd" : "fwd";
}

Json row_json(const Row& row) {
  Json json = {{"spec", row.spec}, {"dims", row.dims}};
  if (row.error) {
    json["error"] = error_json(*row.error, nullptr);
    return json;
  }
  json["direction"] = word_of(row.direction);
  for (const char* key : {"strategy", "predicted_ms"}) json[key] = row.decision[key];
  json["device"] = bench::json_of(row.device);
  if (row.flops) {
    json["flop"] = *row.flops;
    json["flop_counted_rows"] = row.counted_rows;
  } else {
    json["flop"] = nullptr;
    json["flop_unknown"] = row.unknown;
    json["device"]["tflops"] = nullptr;
  }
  json["device"]["peak_tflops"] = row.peak;
  if (!row.host.empty()) json["host"] = bench::json_of(row.host);
  return json;
}

std::string us_text(const Row& row, std::size_t way) {
  return row.host.empty() ? "-" : fmt::format("{:.2f}", row.host[way].us);
}

// Prints each row as soon as it is measured, as text or as a line of JSON.
class Printer {
 public:
  Printer(Format format, const std::vector<std::string>& paths)
      : format_(format), table_(kColumns, {longest(paths), 9, 9}, output_paint()) {}

  void print(const Row& row) {
    Progress::clear();
    if (format_ == Format::json_lines) print_json_line(row_json(row));
    if (format_ == Format::text) print_text(row);
    std::fflush(stdout);
  }

 private:
  static const std::vector<Table::Column> kColumns;

  static std::size_t longest(const std::vector<std::string>& paths) {
    std::size_t size = 0;
    for (const std::string& path : paths) size = std::max(size, shown(path).size());
    return size;
  }

  void print_text(const Row& row) {
    if (row.error) {
      fmt::print("{}: {}\n", row.spec, row.error->message);
      return;
    }
    if (!std::exchange(has_titles_, true)) fmt::print("{}", table_.titles());
    fmt::print("{}", table_.row(cells_of(row)));
    if (!row.unknown.empty()) {
      fmt::print("{}: FLOP count unknown: {}\n", row.spec, row.unknown);
    }
  }

  static std::vector<Table::Cell> cells_of(const Row& row) {
    return {row.spec,
            std::string(word_of(row.direction)),
            fmt::format("{:.4f}", row.device.median_ms),
            fmt::format("{:.4f}", row.device.p10_ms),
            fmt::format("{:.4f}", row.device.p90_ms),
            row.flops ? fmt::format("{:.0f}", row.device.tflops) : "-",
            share_of_peak(row) ? fmt::format("{:.0f}", 100 * *share_of_peak(row)) : "-",
            us_text(row, 1),
            us_text(row, 0),
            row.dims};
  }

  const Format format_;
  GrowingTable table_;
  bool has_titles_ = false;
};

const std::vector<Table::Column> Printer::kColumns = {{"spec"},
                                                      {"direction"},
                                                      {"median ms", Align::right},
                                                      {"p10", Align::right},
                                                      {"p90", Align::right},
                                                      {"TFLOP/s", Align::right},
                                                      {"% of peak", Align::right},
                                                      {"host us", Align::right},
                                                      {"bare us", Align::right},
                                                      {"dims"}};

// The rows of all specs, printed and kept.
class Rows {
 public:
  Rows(Format format, const std::vector<std::string>& paths) : printer_(format, paths) {}

  void add(Row row) {
    printer_.print(row);
    all_.push_back(std::move(row));
  }
  const std::vector<Row>& all() const { return all_; }

 private:
  Printer printer_;
  std::vector<Row> all_;
};

// Writes JSON with all rows, and the file of --json.
int finish(const Options& options, const plan::Target& target, const std::vector<Row>& rows) {
  Json json = {{"device", target.name}, {"rows", Json::array()}};
  for (const Row& row : rows) json["rows"].push_back(row_json(row));
  if (options.format == Format::json) print_json(json);
  if (options.json_file.empty()) return kOk;
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const Status written = io::write_file(options.json_file, std::as_bytes(std::span(text)));
  return written.ok() ? kOk : report(written.error(), options.format);
}

// Times one plan and appends its row.
Status add_row(const std::string& path, const ir::Attention& attention,
               const Result<ShownScores>& scores, TimedPlan& loaded, const plan::Target& target,
               const Options& options, Rows& rows) {
  Row row;
  row.spec = path;
  row.direction = plan::direction_of(loaded.plan.program);
  row.dims = dims_of(attention);
  row.decision = decision_json(loaded.plan);
  const DType of_products = type_of_products(loaded.plan.program, attention.dtype);
  row.peak = target::gpu_of(target).rate(of_products);
  count_flops(attention, scores, row);
  ATTN_RETURN_IF_ERROR(time_plan(loaded, options, row));
  check_peak(target, of_products, row);
  rows.add(std::move(row));
  return {};
}

bool has_no_forward(const Subject& subject) {
  return subject.file && subject.file->find(plan::Direction::forward) == nullptr;
}

Directions directions_of(const Subject& subject, const Options& options) {
  if (options.direction.empty()) return {!has_no_forward(subject), has_no_forward(subject)};
  return {options.direction != "bwd", options.direction != "fwd"};
}

// The backward of a file without a forward, and a forward for the o and lse that it reads.
Result<Plans> with_forward(const Subject& subject, const driver::CompileOptions& how) {
  Plans plans;
  ATTN_ASSIGN(plans.backward, plan::plan_of(*subject.file, plan::Direction::backward));
  tell_note("the plan file has no forward: one is compiled, for what its backward reads of it");
  ATTN_ASSIGN(plans.forward, compile_training_forward(subject.spec, how));
  return plans;
}

Result<Plans> plans_for(const Subject& subject, const Directions& timed, const plan::Target& target,
                        const Options& options) {
  const bool compiles = !subject.file || (has_no_forward(subject) && !timed.forward);
  if (!compiles) return plans_of(*subject.file, timed.backward);
  driver::CompileOptions how;
  how.target = target;
  how.worker = worker_options(options.cudnn_folder, options.limits);
  how.lowering = options.lowering;
  how.rewrites = options.rewrites;
  set_autotune(how, options.tuning, true, options.cudnn_folder);
  if (options.use_cache) {
    how.cached = open_cache(options.cudnn_folder);
  }
  if (subject.file) return with_forward(subject, how);
  return compile_plans(subject.spec, how, timed.backward);
}

Status time_subject(const std::string& path, const Subject& subject, const plan::Target& target,
                    const Options& options, Rows& rows) {
  const Directions timed = directions_of(subject, options);
  ATTN_ASSIGN(const Plans plans, plans_for(subject, timed, target, options));
  const ir::Attention& attention = subject.spec.attention;
  ATTN_ASSIGN(TimedPlan forward,
              load_timed(attention, plans.forward, options.cudnn_folder, options.inputs));
  const Result<ShownScores> scores = count_scores(attention, forward);
  if (timed.forward) {
    ATTN_RETURN_IF_ERROR(add_row(path, attention, scores, forward, target, options, rows));
  }
  if (!plans.backward) return {};
  ATTN_ASSIGN(TimedPlan backward,
              load_timed(attention, *plans.backward, options.cudnn_folder, options.inputs));
  ATTN_RETURN_IF_ERROR(save(forward, backward));
  return add_row(path, attention, scores, backward, target, options, rows);
}

Row failed(const std::string& path, const Error& error) {
  Row row;
  row.spec = path;
  row.error = error;
  return row;
}

int run_all(const Options& options, const std::vector<std::string>& paths,
            const plan::Target& target) {
  Rows rows(options.format, paths);
  Progress progress("bench", paths.size());
  int worst = kOk;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    progress.show(i, path);
    const SubjectOutcome outcome =
        read_subject(path, options.bindings, Format::text, options.inputs);
    worst = std::max(worst, outcome.exit_code);
    if (!outcome.subject) {
      rows.add(failed(path, *outcome.error));
    } else if (const Status status = time_subject(path, *outcome.subject, target, options, rows);
               !status.ok()) {
      tell(error_text(status.error(), outcome.subject->spec.source.get(), error_paint()));
      rows.add(failed(path, status.error()));
      worst = std::max(worst, exit_code(status.error().code));
    }
  }
  return std::max(worst, finish(options, target, rows.all()));
}

int run(const Options& options) {
  const auto paths = spec_paths(options.specs, options.folder);
  if (!paths.ok()) return report(paths.error(), options.format);
  const Result<plan::Target> target = native_target(options.cudnn_folder);
  if (!target.ok()) {
    return report(needs_device("bench", target.error()), options.format);
  }
  return run_all(options, *paths, *target);
}

}  // namespace
}  // namespace bench_command

void add_bench(CLI::App& app, Action& action) {
  using namespace bench_command;
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure device and host time of specs on the local GPU");
  command->add_option("specs", options->specs, "Files (.attn, .attn.json), or plan files")
      ->type_name("SPEC|PLAN...");
  command->add_option("--all", options->folder, "Every spec in this folder")->type_name("DIR");
  add_bind(*command, options->bindings);
  add_in(*command, options->inputs);
  add_direction(*command, options->direction,
                "What to time: forward, backward, or both (default: fwd; bwd if a plan file has "
                "no other)");
  command->add_option("--iterations", options->iterations, "Number of device-time samples")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command->add_flag("--device-only", options->device_only, "Do not measure host time");
  command->add_option("--json", options->json_file, "Also write the results to this file")
      ->type_name("FILE");
  add_strategy(*command, options->lowering, options->rewrites);
  add_build_limits(*command, options->limits);
  add_autotune(*command, options->tuning);
  add_cache_option(*command, options->use_cache);
  add_deny(*command);
  add_cudnn(*command, options->cudnn_folder);
  add_format(*command, options->format, true);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
