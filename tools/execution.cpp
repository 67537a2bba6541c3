#include "tools/execution.h"

#include <fmt/format.h>

#include <cstring>

#include "compiler/gradient/differentiate.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/execute/executable.h"
#include "tools/inputs.h"
#include "tools/placement.h"

namespace attn::tools {
namespace {

constexpr std::uint8_t kPoison = 0xff;  // every float is a NaN

Error in_tensor(const std::string& name, Error error) {
  error.message = fmt::format("tensor '{}': {}", name, error.message);
  return error;
}

// Uploads the tensors of the program, which omits captured tensors that no step reads, with its
// strides.
Result<execute::DeviceTensors> upload(const cuda::Device& device, const plan::Program& program,
                                      const Placement& placement) {
  ATTN_ASSIGN(auto tensors, execute::DeviceTensors::allocate(device, program));
  for (const plan::TensorInfo& info : program.tensors) {
    if (info.is_output()) continue;
    Result<std::vector<std::byte>> bytes = placement.bytes_of(info);
    if (!bytes.ok()) return in_tensor(info.name, bytes.error());
    ATTN_RETURN_IF_ERROR(tensors.upload_bytes(info.name, *bytes));
  }
  return tensors;
}

Status poison_outputs(const plan::Program& program, execute::DeviceTensors& tensors) {
  for (const plan::TensorInfo& info : program.tensors) {
    if (info.is_output()) ATTN_RETURN_IF_ERROR(tensors.fill(info.name, kPoison));
  }
  return {};
}

Result<Outputs> download(const plan::Program& program, const execute::DeviceTensors& tensors,
                         const Placement& placement) {
  Outputs outputs;
  for (const plan::TensorInfo& info : program.tensors) {
    if (!info.is_output()) continue;
    ATTN_ASSIGN(const std::vector<std::byte> bytes, tensors.download_bytes(info.name));
    ATTN_ASSIGN(outputs[info.name], placement.logical(info, bytes));
  }
  return outputs;
}

// Compares bits: NaN equals the same NaN, and -0 differs from 0.
bool same_bits(const io::HostTensor& x, const io::HostTensor& y) {
  return std::memcmp(x.values.data(), y.values.data(), x.values.size() * sizeof(double)) == 0;
}

void count_deviations(const Outputs& outputs, Repeated& repeated) {
  for (const auto& [name, tensor] : outputs) {
    if (!same_bits(tensor, repeated.outputs.at(name))) ++repeated.deviations[name];
  }
}

execute::Arguments arguments_of(const execute::Executable& executable,
                                const execute::DeviceTensors& tensors,
                                const reference::Inputs& inputs) {
  execute::Arguments arguments = tensors.arguments();
  for (const plan::ParamInfo& param : executable.program().params) {
    arguments.scalar(param.name, param.dtype, inputs.params.at(param.name));
  }
  return arguments;
}

Result<Repeated> repeat_plan(const plan::Plan& plan, const reference::Inputs& inputs,
                             const std::string& cudnn_folder, int count, Unused unused) {
  execute::LoadOptions options;
  options.cudnn_folder = cudnn_folder;
  ATTN_ASSIGN(auto executable, execute::Executable::load(plan, options));
  const plan::Program program = with_other_strides(executable.program());
  ATTN_ASSIGN(const Placement placement, Placement::create(program, inputs, unused));
  ATTN_ASSIGN(auto tensors, upload(executable.device(), program, placement));
  ATTN_ASSIGN(auto binding, executable.bind(arguments_of(executable, tensors, inputs)));
  ATTN_ASSIGN(const auto stream, cuda::Stream::create(executable.device()));
  Repeated repeated;
  for (int i = 0; i < count; ++i) {
    ATTN_RETURN_IF_ERROR(poison_outputs(program, tensors));
    ATTN_RETURN_IF_ERROR(binding.execute(stream.handle()));
    ATTN_RETURN_IF_ERROR(stream.synchronize());
    ATTN_ASSIGN(Outputs outputs, download(program, tensors, placement));
    if (i == 0) {
      for (const auto& [name, tensor] : outputs) repeated.deviations[name] = 0;
      repeated.outputs = std::move(outputs);
    } else {
      count_deviations(outputs, repeated);
    }
  }
  return repeated;
}

// Adds the forward outputs that the backward reads to the inputs.
Result<reference::Inputs> with_saved(reference::Inputs inputs, const plan::Plan& backward,
                                     const Outputs& outputs) {
  for (const plan::TensorInfo& info : backward.program.tensors) {
    if (info.role != plan::TensorRole::saved) continue;
    const auto made = outputs.find(info.name);
    if (made == outputs.end()) {
      return {
          ErrorCode::invalid_argument,
          fmt::format("the backward reads `{}`, which the forward does not produce", info.name)};
    }
    inputs.tensors[info.name] = made->second;
  }
  return inputs;
}

// The outputs that the spec asks for.
Outputs listed(const ir::Attention& attention, reference::Outputs all) {
  Outputs outputs;
  if (attention.wants_o) outputs["o"] = std::move(all.o);
  if (attention.wants_o_inner) outputs["o_inner"] = std::move(all.o_inner);
  if (attention.wants_branches) {
    for (auto& [name, tensor] : all.branches) outputs[name] = std::move(tensor);
  }
  if (attention.wants_lse) outputs["lse"] = std::move(all.lse);
  if (attention.wants_max) outputs["max"] = std::move(all.max);
  if (attention.wants_sum_exp) outputs["sum_exp"] = std::move(all.sum_exp);
  if (attention.wants_max_with_sink) outputs["max_with_sink"] = std::move(all.max_with_sink);
  if (attention.wants_sum_exp_with_sink) {
    outputs["sum_exp_with_sink"] = std::move(all.sum_exp_with_sink);
  }
  if (attention.wants_lse_without_sink) {
    outputs["lse_without_sink"] = std::move(all.lse_without_sink);
  }
  if (attention.wants_amax_s) outputs["amax_s"] = std::move(all.amax_s);
  if (attention.wants_amax_o) outputs["amax_o"] = std::move(all.amax_o);
  return outputs;
}

// What may be left where the terms of a gradient cancel, of their size: 2^-8 of it, since kernels
// have them in 16 bits at least. With an o of 8 bits, two roundings of it let delta differ by 0.6 u
// of its terms (compare.h), which is 0.3 of the bound of amax, of 2 u or more; dv has no delta.
double left_of_terms(const ir::Attention& attention, std::string_view amax) {
  return is_fp8(attention.dtype_of("o")) && amax != "amax_dv" ? 0.3 : 0x1p-8;
}

}  // namespace

Result<Outputs> run_reference(const ir::Attention& attention, const reference::Inputs& inputs,
                              const reference::Options& options) {
  ATTN_ASSIGN(reference::Outputs all, reference::evaluate(attention, inputs, options));
  return listed(attention, std::move(all));
}

Result<ReferenceGradients> run_reference_gradients(const ir::Attention& attention,
                                                   reference::Inputs inputs, bool forward,
                                                   const reference::Options& options) {
  const auto cotangent = inputs.tensors.extract(kCotangent);
  const auto of_lse = inputs.tensors.extract(kCotangentOfLse);
  reference::Options with_d_lse = options;
  if (!of_lse.empty()) with_d_lse.d_lse = &of_lse.mapped();
  ATTN_ASSIGN(reference::Gradients gradients,
              reference::gradients(attention, inputs, cotangent.mapped(),
                                   gradient::wanted_gradients(attention), with_d_lse));
  ReferenceGradients result;
  if (forward) result.outputs = listed(attention, std::move(gradients.outputs));
  for (auto& [name, tensor] : gradients.of) {
    result.outputs[gradient::gradient_name(name)] = std::move(tensor);
  }
  if (attention.quantize) result.outputs.merge(std::move(gradients.amax));
  for (auto& [name, tensor] : gradients.sizes) {
    result.sizes[gradient::gradient_name(name)] = std::move(tensor);
  }
  for (const auto& [name, size] : gradients.amax_sizes)
    result.sizes[name] = {DType::f32, {1}, {left_of_terms(attention, name) * size}};
  return result;
}

Result<Outputs> run_on_device(const plan::Plan& plan, const reference::Inputs& inputs,
                              const std::string& cudnn_folder) {
  ATTN_ASSIGN(Repeated once, repeat_plan(plan, inputs, cudnn_folder, 1, Unused::finite));
  return std::move(once.outputs);
}

Result<Repeated> repeat_on_device(const Plans& plans, const reference::Inputs& inputs,
                                  const std::string& cudnn_folder, int count, Unused unused) {
  ATTN_ASSIGN(Repeated all, repeat_plan(plans.forward, inputs, cudnn_folder, count, unused));
  if (!plans.backward) return all;
  ATTN_ASSIGN(const reference::Inputs saved, with_saved(inputs, *plans.backward, all.outputs));
  ATTN_ASSIGN(Repeated gradients, repeat_plan(*plans.backward, saved, cudnn_folder, count, unused));
  all.outputs.merge(gradients.outputs);
  all.deviations.merge(gradients.deviations);
  return all;
}

}  // namespace attn::tools
