#include "runtime/execute/plan_kernel.h"

#include <fmt/format.h>

#include <algorithm>

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

// Describes the first difference; empty if there is none.
std::string difference(const std::vector<std::size_t>& sizes,
                       const std::vector<std::size_t>& listed) {
  if (sizes.size() != listed.size()) {
    return fmt::format("has {} parameters, but the plan lists {}", sizes.size(), listed.size());
  }
  const auto [size, wanted] = std::ranges::mismatch(sizes, listed);
  if (size == sizes.end()) return "";
  return fmt::format("has {} bytes in parameter {}, but the plan lists {}", *size,
                     size - sizes.begin(), *wanted);
}

}  // namespace

Result<cuda::Kernel> load_plan_kernel(const cuda::Device& device, const std::string& image,
                                      const char* name, std::size_t outputs,
                                      const std::vector<plan::OperandSource>& inputs) {
  ATTN_ASSIGN(cuda::Kernel kernel, cuda::Kernel::load(device, image, name));
  ATTN_ASSIGN(const std::vector<std::size_t> sizes, kernel.parameter_sizes());
  const std::vector<std::size_t> listed = listed_sizes(outputs, inputs);
  const std::string what = difference(sizes, listed);
  if (what.empty()) return kernel;
  return Error{ErrorCode::plan_damaged, fmt::format("the plan's kernel {} {}", name, what), {}, {}};
}

}  // namespace attn::execute
