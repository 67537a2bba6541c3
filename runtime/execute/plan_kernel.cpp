#include "runtime/execute/plan_kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attn::execute {
namespace {

constexpr std::size_t kParamBytes = 4;  // f32 or i32

std::vector<std::size_t> listed_sizes(std::size_t outputs,
                                      const std::vector<plan::OperandSource>& inputs) {
  std::vector<std::size_t> sizes(outputs, sizeof(void*));
  for (const plan::OperandSource& input : inputs) {
    const bool by_value = std::holds_alternative<plan::ParamOperand>(input);
    sizes.push_back(by_value ? kParamBytes : sizeof(void*));
  }
  return sizes;
}

}  // namespace

Result<cuda::Kernel> load_plan_kernel(const cuda::Device& device, const std::string& image,
                                      const char* name, std::size_t outputs,
                                      const std::vector<plan::OperandSource>& inputs) {
  ATTN_ASSIGN(cuda::Kernel kernel, cuda::Kernel::load(device, image, name));
  ATTN_ASSIGN(const std::vector<std::size_t> sizes, kernel.parameter_sizes());
  const std::vector<std::size_t> listed = listed_sizes(outputs, inputs);
  if (sizes == listed) return kernel;
  return Error{
      ErrorCode::plan_damaged,
      fmt::format("the plan's kernel {} has {} parameters, of [{}] bytes, but the plan lists {}, "
                  "of [{}] bytes",
                  name, sizes.size(), fmt::join(sizes, ", "), listed.size(),
                  fmt::join(listed, ", ")),
      {},
      {}};
}

}  // namespace attn::execute
