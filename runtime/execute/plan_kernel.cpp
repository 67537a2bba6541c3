#include "runtime/execute/plan_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace attn::execute {
namespace {

std::vector<std::size_t> listed_sizes(const plan::Launch& launch, std::size_t pointers) {
  std::vector<std::size_t> sizes(pointers, sizeof(void*));
  for (const plan::KernelArgument& argument : launch.arguments) {
    sizes.push_back(static_cast<std::size_t>(plan::bytes_of(argument)));
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

Result<LoadedLaunch> load_launch(const cuda::Module& module, const plan::Launch& launch,
                                 std::size_t pointers) {
  ATTN_ASSIGN(cuda::Kernel kernel, module.kernel(launch.kernel.c_str()));
  ATTN_ASSIGN(const std::vector<std::size_t> sizes, kernel.parameter_sizes());
  const std::string what = difference(sizes, listed_sizes(launch, pointers));
  if (!what.empty()) {
    return Error{ErrorCode::plan_damaged,
                 fmt::format("the plan's kernel {} {}", launch.kernel, what)};
  }
  return LoadedLaunch{
      std::move(kernel),
      {launch.grid, launch.block, launch.cluster, launch.shared_bytes, launch.overlaps}};
}

}  // namespace attn::execute
