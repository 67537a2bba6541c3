#include "tools/execution.h"

#include <fmt/format.h>

#include "compiler/gradient/differentiate.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "runtime/cudnn/library.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/execute/executable.h"
#include "runtime/reference/gradients.h"
#include "tools/inputs.h"
#include "tools/placement.h"

namespace attn::tools {
namespace {

constexpr std::uint8_t kPoison = 0xff;  // every float a NaN

Error in_tensor(const std::string& name, Error error) {
  error.message = fmt::format("tensor '{}': {}", name, error.message);
  return error;
}

// Inputs uploaded, outputs poisoned. Captured tensors that no step reads are not in the program.
Result<execute::DeviceTensors> upload(const execute::Executable& executable,
                                      const Placement& placement) {
  ATTN_ASSIGN(auto tensors,
              execute::DeviceTensors::allocate(executable.device(), executable.program()));
  for (const plan::TensorInfo& info : executable.program().tensors) {
    if (info.is_output()) {
      ATTN_RETURN_IF_ERROR(tensors.fill(info.name, kPoison));
    } else {
      Result<std::vector<std::byte>> bytes = placement.bytes_of(info);
      if (!bytes.ok()) return in_tensor(info.name, bytes.error());
      ATTN_RETURN_IF_ERROR(tensors.upload_bytes(info.name, *bytes));
    }
  }
  return tensors;
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

// Those that the spec asks for.
Outputs listed(const ir::Attention& attention, reference::Outputs all) {
  Outputs outputs;
  if (attention.wants_o) outputs["o"] = std::move(all.o);
  if (attention.wants_lse) outputs["lse"] = std::move(all.lse);
  if (attention.wants_max) outputs["max"] = std::move(all.max);
  if (attention.wants_sum_exp) outputs["sum_exp"] = std::move(all.sum_exp);
  return outputs;
}

}  // namespace

std::string gradient_name(std::string_view of) {
  const bool is_input = of == "q" || of == "k" || of == "v";
  return fmt::format("{}{}", is_input ? "d" : "d_", of);
}

Result<Outputs> run_reference(const ir::Attention& attention, const reference::Inputs& inputs,
                              bool unrounded) {
  reference::Options options;
  options.unrounded = unrounded;
  ATTN_ASSIGN(reference::Outputs all, reference::evaluate(attention, inputs, options));
  return listed(attention, std::move(all));
}

Result<Outputs> run_reference_gradients(const ir::Attention& attention, reference::Inputs inputs,
                                        bool forward, bool unrounded) {
  const auto cotangent = inputs.tensors.extract(kCotangent);
  reference::Options options;
  options.unrounded = unrounded;
  ATTN_ASSIGN(reference::Gradients gradients,
              reference::gradients(attention, inputs, cotangent.mapped(),
                                   gradient::wanted_gradients(attention), options));
  Outputs outputs;
  if (forward) outputs = listed(attention, std::move(gradients.outputs));
  for (auto& [name, tensor] : gradients.of) outputs[gradient_name(name)] = std::move(tensor);
  return outputs;
}

Result<Outputs> run_on_device(const plan::Plan& plan, const reference::Inputs& inputs,
                              const std::string& cudnn_folder) {
  execute::LoadOptions options;
  options.cudnn_folder = cudnn_folder;
  ATTN_ASSIGN(auto executable, execute::Executable::load(plan, options));
  ATTN_ASSIGN(const Placement placement, Placement::create(executable.program(), inputs));
  ATTN_ASSIGN(const auto tensors, upload(executable, placement));
  ATTN_ASSIGN(const auto binding, executable.bind(arguments_of(executable, tensors, inputs)));
  ATTN_ASSIGN(const auto stream, cuda::Stream::create(executable.device()));
  ATTN_RETURN_IF_ERROR(executable.execute(binding, stream.handle()));
  ATTN_RETURN_IF_ERROR(stream.synchronize());
  Outputs outputs;
  for (const plan::TensorInfo& info : executable.program().tensors) {
    if (!info.is_output()) continue;
    ATTN_ASSIGN(const std::vector<std::byte> bytes, tensors.download_bytes(info.name));
    ATTN_ASSIGN(outputs[info.name], placement.logical(info, bytes));
  }
  return outputs;
}

Status device_status(const std::string& cudnn_folder) {
  ATTN_RETURN_IF_ERROR(cuda::Device::open(0));
  ATTN_RETURN_IF_ERROR(cudnn::Library::load(cudnn_folder));
  return {};
}

}  // namespace attn::tools
