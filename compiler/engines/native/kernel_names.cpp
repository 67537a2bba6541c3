#include "compiler/engines/native/kernel_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "compiler/engines/native/narrow_backward.h"

namespace attn::engines::native {
namespace {

// What the kernel of this name does; empty for others.
std::string_view what_of_kernel(std::string_view name) {
  constexpr std::string_view kKernels[][2] = {
#define ATTN_KERNEL(constant, name, what) {name, what},
#include "compiler/engines/native/kernel_names.def"
  };
  for (const auto& [known, what] : kKernels) {
    if (known.back() == '_' ? name.starts_with(known) : name == known) return what;
  }
  return {};
}

bool makes_lists(const plan::KernelStep& step) {
  return std::ranges::any_of(
      step.launches, [](const plan::Launch& launch) { return launch.kernel == kListsKernel; });
}

// Gradients this launch reduces over key-block parts.
std::vector<std::string> merged_gradients(const plan::Launch& launch) {
  std::vector<std::string> merged;
  for (const plan::KernelArgument& argument : launch.arguments) {
    const plan::TensorOperand* tensor = plan::tensor_of(argument);
    const bool is_merged = tensor != nullptr && (tensor->name == "dk" || tensor->name == "dv");
    if (is_merged) merged.push_back(tensor->name);
  }
  return merged;
}

}  // namespace

std::string what_of_launch(const plan::KernelStep& step, const plan::Launch& launch) {
  const bool converts = launch.kernel == kConvertKernel, merges = launch.kernel == kMergeKernel;
  std::string what(what_of_kernel(launch.kernel));
  if (launch.kernel == kPrepareKernel && plan::names(launch, kRowsTensor))
    return "rows of 8 bits widened to bf16; " + what;
  if (!converts && !merges) return what;
  const std::vector<std::string> gradients = merged_gradients(launch);
  if (gradients.empty()) return what;
  const std::string merged =
      fmt::format("{}: {}{}", fmt::join(gradients, " and "), what_of_kernel(kMergeKernel),
                  makes_lists(step) ? ", if any" : "");
  return converts ? what + "; " + merged : merged;
}

}  // namespace attn::engines::native
