// The operands of a step as cuDNN takes them: uids with addresses. Private to this room and to
// benchmarks.
#pragma once

#include <variant>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/execute/arguments.h"
#include "runtime/execute/scalars.h"
#include "runtime/plan/program.h"

namespace attn::execute {

struct Addresses {
  std::vector<graph::Uid> uids;
  std::vector<void*> pointers;  // of the tensor, or into `scalars`; same order
};

// The one kind of step there is; a further kind needs its own way of loading and executing, and
// does not compile before it has one.
inline const plan::CudnnStep& cudnn_step(const plan::Step& step) {
  static_assert(std::variant_size_v<plan::Step> == 1);
  return std::get<plan::CudnnStep>(step);
}

// In the order of the step's operands. Requires checked arguments.
// `counting` is device memory that holds at least plan::counting_elements() numbers.
Addresses addresses_of(const plan::CudnnStep& step, const Arguments& arguments, Scalars& scalars,
                       void* counting);

// Device memory that holds 0, 1, .. as i32, as many as the program reads; null when it reads none.
// Errors: cuda.
Result<cuda::DeviceBuffer> counting_numbers(const plan::Program& program,
                                            const cuda::Device& device);

}  // namespace attn::execute
