#include "bench/random_arguments.h"

#include "runtime/io/random.h"

namespace attn::bench {

Result<execute::DeviceTensors> random_tensors(const cuda::Device& device,
                                              const plan::Program& program) {
  ATTN_ASSIGN(auto tensors, execute::DeviceTensors::allocate(device, program));
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (tensor.is_output()) continue;
    const bool is_cache =
        tensor.role == plan::TensorRole::key || tensor.role == plan::TensorRole::value;
    ATTN_RETURN_IF_ERROR(is_float(tensor.dtype) || is_cache
                             ? tensors.fill_random(tensor.name, io::seed_of(tensor.name))
                             : tensors.fill(tensor.name, 0));
  }
  return tensors;
}

execute::Arguments with_unit_params(const execute::DeviceTensors& tensors,
                                    const plan::Program& program) {
  execute::Arguments arguments = tensors.arguments();
  for (const plan::ParamInfo& param : program.params) arguments.scalar(param.name, param.dtype, 1);
  return arguments;
}

}  // namespace attn::bench
