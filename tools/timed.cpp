#include "tools/timed.h"

#include <algorithm>

#include "bench/random_arguments.h"
#include "bench/timing.h"
#include "compiler/reference/shown.h"
#include "tools/inputs.h"
#include "tools/placement.h"

namespace attn::tools {
namespace {

constexpr int kSamples = 12;

// Full lengths; seed and offset are 0.
reference::Inputs bench_controls(const ir::Attention& attention) {
  reference::Inputs inputs;
  const auto fill = [&](std::string_view name, ir::Dim dim) {
    const std::int64_t batches = attention.dims[ir::Dim::B];
    const std::vector<double> values(static_cast<std::size_t>(batches),
                                     static_cast<double>(attention.dims[dim]));
    inputs.tensors[std::string(name)] = {DType::i32, {batches}, values};
  };
  fill(ir::kLengthsQ, ir::Dim::Sq);
  fill(ir::kLengthsKv, ir::Dim::Skv);
  inputs.params = {{"seed", 0}, {"offset", 0}};
  return inputs;
}

Result<execute::DeviceTensors> make_tensors(const ir::Attention& attention,
                                            const execute::Executable& executable) {
  ATTN_ASSIGN(auto tensors, bench::random_tensors(executable.device(), executable.program()));
  const reference::Inputs controls = bench_controls(attention);
  ATTN_ASSIGN(const Placement placement, Placement::create(executable.program(), controls));
  for (const plan::TensorInfo& info : executable.program().tensors) {
    const bool is_scale = attention.quantize && ir::is_scale(info.name);
    if (info.is_output() || (is_float(info.dtype) && !is_scale)) continue;
    if (info.role == plan::TensorRole::control || controls.tensors.contains(info.name)) {
      ATTN_ASSIGN(const std::vector<std::byte> bytes, placement.bytes_of(info));
      ATTN_RETURN_IF_ERROR(tensors.upload_bytes(info.name, bytes));
      continue;
    }
    ATTN_ASSIGN(const io::HostTensor values, default_tensor(attention, info.name));
    ATTN_RETURN_IF_ERROR(tensors.upload(info.name, values));
  }
  return tensors;
}

}  // namespace

execute::Arguments TimedPlan::arguments() const {
  return bench::with_unit_params(tensors, executable.program());
}

Result<TimedPlan> load_timed(const ir::Attention& attention, const plan::Plan& plan,
                             const std::string& cudnn_folder) {
  execute::LoadOptions how;
  how.cudnn_folder = cudnn_folder;
  how.direction = plan::direction_of(plan.program);
  ATTN_ASSIGN(auto executable, execute::Executable::load(plan, how));
  ATTN_ASSIGN(auto tensors, make_tensors(attention, executable));
  return TimedPlan{plan, how, std::move(executable), std::move(tensors)};
}

Result<reference::Inputs> bound_values(const ir::Attention& attention, const TimedPlan& timed) {
  reference::Inputs values = bench_controls(attention);
  for (const ir::Param& param : attention.params) values.params[param.name] = 1;
  const std::vector<plan::TensorInfo>& bound = timed.executable.program().tensors;
  for (const std::string& name : reference::tensors_that_hide(attention)) {
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

}  // namespace attn::tools
