#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>

#include "compiler/driver/driver.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/quantized.h"
#include "compiler/ir/bound.h"
#include "runtime/cudnn/library.h"
#include "runtime/io/npy.h"
#include "runtime/plan/bundle.h"
#include "tools/cached.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/execution.h"
#include "tools/inputs.h"
#include "tools/patience.h"
#include "tools/plans.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/subject.h"
#include "tools/table.h"
#include "tools/target_option.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

constexpr std::size_t kShown = 4;

struct Summary {
  double mean = 0;
  double max_abs = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
};

Summary summarize(const std::vector<double>& values) {
  Summary summary;
  std::int64_t finite = 0;
  for (const double value : values) {
    if (std::isnan(value)) {
      ++summary.nan;
    } else if (std::isinf(value)) {
      ++summary.infinite;
    } else {
      ++finite;
      summary.mean += value;
      summary.max_abs = std::max(summary.max_abs, std::abs(value));
    }
  }
  if (finite == 0) summary.mean = summary.max_abs = std::numeric_limits<double>::quiet_NaN();
  if (finite > 0) summary.mean /= static_cast<double>(finite);
  return summary;
}

// The first values; a NaN has no sign, which would be printed.
std::vector<double> first(const std::vector<double>& values) {
  std::vector<double> few(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(
                                                               std::min(kShown, values.size())));
  for (double& value : few) {
    if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  }
  return few;
}

// A table: name, dtype, dims, mean and largest magnitude of the finite values (NaN if there are
// none), number of NaNs and infinities, first values.
std::string summary_text(const Outputs& outputs) {
  Table table({{"output"},
               {"dtype"},
               {"dims"},
               {"mean", Align::right},
               {"max abs", Align::right},
               {"NaN", Align::right},
               {"inf", Align::right},
               {"first values"}});
  for (const auto& [name, tensor] : outputs) {
    const Summary summary = summarize(tensor.values);
    table.add({name, std::string(to_string(tensor.dtype)), dims_text(tensor.dims),
               fmt::format("{:.4g}", summary.mean), fmt::format("{:.4g}", summary.max_abs),
               fmt::format("{}", summary.nan), fmt::format("{}", summary.infinite),
               fmt::format("{:.5g}", fmt::join(first(tensor.values), " "))});
  }
  return table.to_text();
}

// {"o": {"dtype", "dims", "mean", "max_abs", "nan", "inf", "first"}}; values that JSON cannot
// represent are null.
Json summary_json(const Outputs& outputs) {
  Json json = Json::object();
  for (const auto& [name, tensor] : outputs) {
    const Summary summary = summarize(tensor.values);
    json[name] = {
        {"dtype", to_string(tensor.dtype)}, {"dims", tensor.dims}, {"mean", summary.mean},
        {"max_abs", summary.max_abs},       {"nan", summary.nan},  {"inf", summary.infinite},
        {"first", first(tensor.values)}};
  }
  return json;
}

}  // namespace

namespace run_command {
namespace {

struct Options {
  std::string path;
  std::string backend = "auto";
  std::string direction = "fwd";
  std::string cudnn_folder;
  std::string lowering{planner::kAnyLowering};
  target::Rewrites rewrites;
  BuildLimits limits{};
  sema::Bindings bindings;
  Edits edits;
  InputTexts inputs;
  std::map<std::string, std::string> files;  // --out
  bool gradients = false;                    // --grad
  bool unrounded = false;
  bool recompile = false;
  bool use_cache = false;
  bool yes = false;
  Format format = Format::text;

  bool wants_gradients() const { return gradients || direction != "fwd"; }
  std::string_view asked() const {
    return gradients && direction == "fwd" ? std::string_view("both") : direction;
  }
  bool wants_forward() const { return direction != "bwd"; }
};

bool chooses_kernels(const Options& options) {
  return options.use_cache || options.lowering != planner::kAnyLowering;
}

Status check_files(const Options& options) {
  for (const auto& [name, file] : options.files) {
    if (file.ends_with(".npy")) continue;
    const std::string meant = std::filesystem::path(file).replace_extension(".npy").string();
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--out {}={}: the name does not end in .npy", name, file),
                 {fmt::format("outputs are written as .npy files: --out {}={}", name, meant)}};
  }
  return {};
}

Status check_options(const Options& options) {
  ATTN_RETURN_IF_ERROR(check_files(options));
  if (options.unrounded && options.backend == "cudnn") {
    return {ErrorCode::invalid_argument,
            "--unrounded needs the reference backend; kernels always round"};
  }
  if (options.backend == "reference" && chooses_kernels(options)) {
    return {
        ErrorCode::invalid_argument,
        "--engine, --strategy and --use-cache are of kernels, and --backend reference runs none"};
  }
  if (!is_plan(options.path) && options.recompile) {
    return {ErrorCode::invalid_argument,
            "--recompile needs a plan file; specs are always compiled"};
  }
  return {};
}

// Says that `auto` chose the reference, and that it leaves options unused.
void tell_reference(const std::string& why, const Options& options) {
  tell_note(fmt::format("backend: reference, {}", why));
  if (chooses_kernels(options)) {
    tell_note("  `--engine`, `--strategy` and `--use-cache` are of kernels, and are not used");
  }
}

// "cudnn", which stands for the GPU, or "reference". Prints to standard error what `auto` chose,
// and why.
std::string choose_backend(const Options& options) {
  if (options.backend != "auto") return options.backend;
  if (options.unrounded) {
    tell_reference("because of --unrounded", options);
    return "reference";
  }
  const Result<plan::Target> device = native_target(options.cudnn_folder);
  const auto library = cudnn::Library::load(options.cudnn_folder);
  if (device.ok() && library.ok()) {
    tell_note(fmt::format("backend: cudnn, because there is a GPU, {}", device->name));
    return "cudnn";
  }
  const std::string& why = device.ok() ? library.error().message : device.error().message;
  tell_reference(fmt::format("because {}", why), options);
  if (device.ok()) {  // not everything has them
    tell_note("  `--backend cudnn` tries attnc's own kernels, which do not need cuDNN");
  }
  return "reference";
}

// The plans of a file, without recompiling.
Result<Plans> plans_as_they_are(const plan::Bundle& file, const Options& options) {
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    const bool needed = direction == plan::Direction::forward || options.wants_gradients();
    if (!needed || file.find(direction) != nullptr) continue;
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{} has no {} plan of `{}`, which --direction {} needs", options.path,
                    plan::to_string(direction), file.plans.front().spec_name, options.asked()),
        {"use --recompile to compile it from the spec in the plan file"}};
  }
  return plans_of(file, options.wants_gradients());
}

Result<Plans> plans_for_device(const Subject& subject, const Options& options) {
  if (subject.file && !options.recompile) return plans_as_they_are(*subject.file, options);
  driver::CompileOptions how;
  Result<plan::Target> target = native_target(options.cudnn_folder);
  if (!target.ok()) {
    Error error = needs_device("--backend cudnn", target.error());
    error.notes.emplace_back("`--backend reference` computes on the CPU");
    return error;
  }
  how.target = std::move(*target);
  how.worker = worker_options(options.cudnn_folder, options.limits);
  how.lowering = options.lowering;
  how.rewrites = options.rewrites;
  if (options.use_cache) {
    how.cached = open_cache(options.cudnn_folder);
  }
  return compile_plans(subject.spec, how, options.wants_gradients());
}

// What ran, in words.
std::string kernels_of(const Plans& plans) {
  bool cudnn = false, own = false;
  const auto add = [&](const plan::Plan& plan) {
    cudnn |= !plan::steps_of<plan::CudnnStep>(plan.program).empty();
    own |= !plan::steps_of<plan::KernelStep>(plan.program).empty();
  };
  add(plans.forward);
  if (plans.backward) add(*plans.backward);
  if (!own) return "cuDNN's kernels";
  return cudnn ? "cuDNN's and attnc's kernels" : "attnc's kernels";
}

struct Executed {
  Outputs outputs;
  std::string by;
};

Result<Executed> execute(const Subject& subject, const Options& options, const std::string& backend,
                         const reference::Inputs& inputs) {
  const ir::Attention& attention = subject.spec.attention;
  if (backend == "cudnn") {
    ATTN_ASSIGN(const Plans plans, plans_for_device(subject, options));
    ATTN_ASSIGN(Repeated once, repeat_on_device(plans, inputs, options.cudnn_folder, 1));
    return Executed{std::move(once.outputs), kernels_of(plans)};
  }
  Patience patience(attention, options.yes);
  reference::Options how;
  how.unrounded = options.unrounded;
  how.observer = patience.observer();
  if (!options.wants_gradients()) {
    ATTN_ASSIGN(Outputs outputs, run_reference(attention, inputs, how));
    return Executed{std::move(outputs), backend};
  }
  ATTN_ASSIGN(ReferenceGradients gradients,
              run_reference_gradients(attention, inputs, options.wants_forward(), how));
  return Executed{std::move(gradients.outputs), backend};
}

std::vector<std::string> output_names(const ir::Attention& attention, const Options& options) {
  std::vector<std::string> names;
  for (const ir::Output& output : ir::kOutputs) {
    if (attention.*output.wanted && options.wants_forward()) names.emplace_back(output.name);
  }
  for (const ir::Branch& branch : attention.branches) {
    if (!attention.wants_branches || !options.wants_forward()) break;
    names.push_back(branch.o.name);
    if (!branch.attention.is_pointwise()) names.push_back(branch.lse());
  }
  if (!options.wants_gradients()) return names;
  std::ranges::copy(engines::gradient_names(attention), std::back_inserter(names));
  if (!attention.quantize) return names;
  for (const char* amax : engines::amax_of_gradients(attention)) names.emplace_back(amax);
  return names;
}

// Drops outputs that were not asked for: a training pair always computes o and lse.
void keep(const std::vector<std::string>& names, Outputs& outputs) {
  std::erase_if(outputs, [&](const auto& each) {
    return std::ranges::find(names, each.first) == names.end();
  });
}

Status check_out_names(const ir::Attention& attention, const Options& options) {
  const std::vector<std::string> names = output_names(attention, options);
  for (const auto& [name, file] : options.files) {
    if (std::ranges::find(names, name) != names.end()) continue;
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("--out {}: this run has no such output", name),
        {fmt::format("it has {}; forward outputs come from the `outputs` clause, gradients "
                     "(--grad) from `grad`",
                     fmt::join(names, ", "))}};
  }
  return {};
}

Status write_files(const Outputs& outputs, const Options& options) {
  for (const auto& [name, file] : options.files) {
    io::HostTensor tensor = outputs.at(name);
    tensor.dtype = options.unrounded ? DType::f64 : DType::f32;
    ATTN_RETURN_IF_ERROR(io::write_npy(file, tensor));
  }
  return {};
}

void print(const Subject& subject, const Options& options, const std::string& backend,
           const Inputs& inputs, const Executed& executed) {
  if (options.format == Format::json) {
    Json origins = Json::object();
    for (const auto& [name, origin] : inputs.origins) origins[name] = origin;
    print_json({{"name", subject.spec.attention.name},
                {"backend", backend},
                {"by", executed.by},
                {"inputs", origins},
                {"outputs", summary_json(executed.outputs)}});
    return;
  }
  std::string origins;
  for (const auto& [name, origin] : inputs.origins) origins += fmt::format(" {}={}", name, origin);
  fmt::print("{} by {}, inputs{}\n{}", subject.spec.attention.name, executed.by, origins,
             summary_text(executed.outputs));
}

Status run_subject(const Subject& subject, const Options& options) {
  const ir::Attention& attention = subject.spec.attention;
  ATTN_RETURN_IF_ERROR(ir::check_bound(attention));
  ATTN_RETURN_IF_ERROR(check_out_names(attention, options));
  const Needs needs = options.wants_gradients() ? Needs::gradients : Needs::forward;
  ATTN_RETURN_IF_ERROR(check_host_memory(attention, needs));
  ATTN_RETURN_IF_ERROR(
      tell_inputs(attention, options.inputs, needs, options.yes, seconds_of_element()));
  ATTN_ASSIGN(const Inputs inputs, make_inputs(attention, options.inputs, Missing::refuse, needs));
  if (!options.unrounded) {
    for (const std::string& text : inputs.warnings) tell_warning(text);
  }
  const std::string backend = choose_backend(options);
  ATTN_ASSIGN(Executed executed, execute(subject, options, backend, inputs.values));
  keep(output_names(attention, options), executed.outputs);
  ATTN_RETURN_IF_ERROR(write_files(executed.outputs, options));
  print(subject, options, backend, inputs, executed);
  return {};
}

int run(const Options& options) {
  if (const Status status = check_options(options); !status.ok()) {
    return report(status.error(), options.format);
  }
  const SubjectOutcome outcome =
      read_subject(options.path, options.bindings, options.format, options.inputs, options.edits);
  if (!outcome.subject) return outcome.exit_code;
  const Status status = run_subject(*outcome.subject, options);
  if (status.ok()) return kOk;
  return report(status.error(), options.format, outcome.subject->spec.source.get());
}

}  // namespace
}  // namespace run_command

void add_run(CLI::App& app, Action& action) {
  using namespace run_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "run", "Run a spec or plan on given or random inputs, on the GPU or by the CPU reference");
  add_subject(*command, options->path);
  command
      ->add_option(
          "--backend", options->backend,
          "Backend to use: cudnn (the GPU, by cuDNN's or attnc's kernels), or reference; auto "
          "is cudnn if it can be used")
      ->type_name("auto|cudnn|reference")
      ->check(CLI::IsMember({"auto", "cudnn", "reference"}));
  add_bind(*command, options->bindings);
  add_edits(*command, options->edits);
  add_direction(*command, options->direction, "What to run: forward, gradients, or both");
  command->add_flag("--grad", options->gradients,
                    "Also compute the gradients of sum(o * do) that the spec's `grad` lists");
  add_in(*command, options->inputs);
  (void)add_assignments(*command, "--out", "NAME=FILE.npy", options->files,
                        "Write an output to a file, in logical order, as f32 (repeatable)");
  command->add_flag("--unrounded", options->unrounded,
                    "Reference only: do not round inputs and outputs; write f64");
  command->add_flag("--yes", options->yes, "Run the reference even if it takes more than an hour");
  command->add_flag("--recompile", options->recompile, "Recompile the plan for the local GPU");
  add_strategy(*command, options->lowering, options->rewrites);
  add_build_limits(*command, options->limits);
  add_cache_option(*command, options->use_cache);
  add_deny(*command);
  add_cudnn(*command, options->cudnn_folder);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
