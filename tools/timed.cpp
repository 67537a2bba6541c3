#include "tools/timed.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "bench/random_arguments.h"
#include "bench/timing.h"
#include "compiler/ir/branches.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/reference/defaults.h"
#include "compiler/reference/shown.h"
#include "tools/console.h"
#include "tools/placement.h"

namespace attn::tools {
namespace {

using driver::Autotune;

constexpr int kSamples = 12;

// The default that the spec declares; without one, all rows or keys.
Result<io::HostTensor> lengths(const ir::Attention& attention, std::string_view name, ir::Dim dim) {
  const ir::CapturedTensor* tensor = attention.find_tensor(name);
  if (tensor != nullptr && tensor->fallback) return reference::default_values(attention, *tensor);
  const std::int64_t batches = attention.dims[ir::Dim::B];
  const std::vector<double> values(static_cast<std::size_t>(batches),
                                   static_cast<double>(attention.dims[dim]));
  return io::HostTensor{DType::i32, {batches}, values};
}

Result<execute::DeviceTensors> make_tensors(const ir::Attention& attention,
                                            const execute::Executable& executable,
                                            const reference::Inputs& controls) {
  ATTN_ASSIGN(auto tensors, bench::random_tensors(executable.device(), executable.program()));
  ATTN_ASSIGN(const Placement placement, Placement::create(executable.program(), controls));
  for (const plan::TensorInfo& info : executable.program().tensors) {
    const bool is_scale = attention.cache
                              ? ir::is_cache_scale(info.name) && !ir::has_token_scales(attention)
                              : attention.quantize && ir::is_scale(info.name);
    const bool is_cache =
        info.role == plan::TensorRole::key || info.role == plan::TensorRole::value;
    if (info.is_output()) continue;
    if (info.role == plan::TensorRole::control || controls.tensors.contains(info.name)) {
      ATTN_ASSIGN(const std::vector<std::byte> bytes, placement.bytes_of(info));
      ATTN_RETURN_IF_ERROR(tensors.upload_bytes(info.name, bytes));
      continue;
    }
    if ((is_float(info.dtype) || is_cache) && !is_scale) continue;
    ATTN_ASSIGN(const io::HostTensor values, default_tensor(attention, info.name));
    ATTN_RETURN_IF_ERROR(tensors.upload(info.name, values));
  }
  return tensors;
}

}  // namespace

execute::Arguments TimedPlan::arguments() const {
  execute::Arguments arguments = bench::with_unit_params(tensors, executable.program());
  for (const plan::ParamInfo& param : executable.program().params) {
    const auto given = values.params.find(param.name);
    if (given != values.params.end()) arguments.scalar(param.name, param.dtype, given->second);
  }
  return arguments;
}

Result<reference::Inputs> timed_values(const ir::Attention& attention, const InputTexts& texts) {
  ATTN_ASSIGN(reference::Inputs values, given_inputs(attention, texts));
  values.params.insert({{"seed", 0}, {"offset", 0}});
  for (const auto& [name, dim] :
       {std::pair(ir::kLengthsQ, ir::Dim::Sq), std::pair(ir::kLengthsKv, ir::Dim::Skv)}) {
    if (values.tensors.contains(std::string(name))) continue;
    ATTN_ASSIGN(values.tensors[std::string(name)], lengths(attention, name, dim));
  }
  return values;
}

Result<TimedPlan> load_timed(const ir::Attention& attention, const plan::Plan& plan,
                             const std::string& cudnn_folder, const InputTexts& texts) {
  ATTN_ASSIGN(reference::Inputs values, timed_values(attention, texts));
  execute::LoadOptions how;
  how.cudnn_folder = cudnn_folder;
  how.direction = plan::direction_of(plan.program);
  ATTN_ASSIGN(auto executable, execute::Executable::load(plan, how));
  ATTN_ASSIGN(auto tensors, make_tensors(attention, executable, values));
  return TimedPlan{plan, how, std::move(values), std::move(executable), std::move(tensors)};
}

Result<reference::Inputs> bound_values(const ir::Attention& attention, const TimedPlan& timed) {
  reference::Inputs values = timed.values;
  for (const ir::Param& param : attention.params) values.params.try_emplace(param.name, 1);
  const std::vector<plan::TensorInfo>& bound = timed.executable.program().tensors;
  std::set<std::string> names;
  for (const ir::Attention* each : ir::attentions_of(attention)) {
    const std::vector<std::string> read = reference::tensors_that_hide(*each);
    names.insert(read.begin(), read.end());
  }
  for (const std::string& name : names) {
    if (values.tensors.contains(name)) continue;
    const bool is_bound = std::ranges::find(bound, name, &plan::TensorInfo::name) != bound.end();
    ATTN_ASSIGN(values.tensors[name],
                is_bound ? timed.tensors.download(name) : default_tensor(attention, name));
  }
  return values;
}

Result<double> device_ms(const ir::Attention& attention, const plan::Plan& plan,
                         const std::string& cudnn_folder) {
  ATTN_ASSIGN(TimedPlan timed, load_timed(attention, plan, cudnn_folder));
  const execute::Arguments arguments = timed.arguments();
  ATTN_ASSIGN(auto binding, timed.executable.bind(arguments));
  bench::TimingOptions options;
  options.runs = kSamples;
  ATTN_ASSIGN(const bench::Timing timing,
              bench::time_on_device(timed.executable.device(), binding, options));
  return timing.median_ms;
}

namespace {

Autotune autotune_of(const Tuning& tuning, bool is_local) {
  if (tuning.all) return Autotune::all;
  return tuning.never || !is_local ? Autotune::never : Autotune::near;
}

}  // namespace

void add_autotune(CLI::App& command, Tuning& tuning) {
  command.add_flag(
      "--autotune", tuning.all,
      "Compile every program of every strategy, measure each on the local GPU and take the "
      "fastest; the plan file records the measurements");
  command
      .add_flag("--no-autotune", tuning.never,
                "Measure nothing; without it, engines that are predicted to take about as long are "
                "measured where the target is the local GPU")
      ->excludes("--autotune");
}

void set_autotune(driver::CompileOptions& how, const Tuning& tuning, bool is_local,
                  const std::string& cudnn_folder) {
  how.autotune = autotune_of(tuning, is_local);
  const auto progress = std::make_shared<Progress>("autotune", 0);
  how.measure = [=, is_near = how.autotune == Autotune::near](const ir::Attention& attention,
                                                              const plan::Plan& plan) {
    progress->show(0, fmt::format("{} of `{}`", plan.strategy, attention.name));
    tell_detail(fmt::format("measure strategy {}", plan.strategy));
    const Result<double> ms = device_ms(attention, plan, cudnn_folder);
    if (is_near && !ms.ok()) {
      tell_note(
          fmt::format("note: `{}` is planned by predictions alone: {} could not be measured: {}",
                      attention.name, plan.strategy, ms.error().message));
    }
    return ms;
  };
}

}  // namespace attn::tools
