// Whether a plan fits this machine, and arguments fit a plan. Pure functions of what they are
// given, so that they can be tested without a device. Private to this room.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/cuda/memory.h"
#include "runtime/execute/arguments.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

// Errors: plan_device for another GPU architecture.
Status check_device(const plan::Plan& plan, const std::string& device_name, std::int64_t sm);

// Errors: plan_version for any other version of cuDNN: it refuses or misreads others' plans.
Status check_version(const plan::Plan& plan, std::int64_t cudnn_version);

// Its errors are those of the checks too.
using PointerClassifier = std::function<Result<cuda::PointerInfo>(const void*)>;

// Whether the tensor says where the pages of another lie.
bool is_page_table(const plan::Program& program, const plan::TensorInfo& tensor);

// Every tensor and param of the program given and nothing else; dtype, dims, strides (but for dims
// of size 1), address not null, aligned, and in memory of device `device` (managed memory counts)
// that goes on to the tensor's end, unless another tensor says which parts are used; nothing is
// written at the address of another tensor.
// A pool may have fewer pages than the plan's, and the rows of a page table may lie further apart
// than the plan's. Errors: binding; the message is the first thing wrong, the notes are the others.
Status check_arguments(const plan::Program& program, const Arguments& arguments, int device,
                       const PointerClassifier& classify);

// One address for each tensor of the program, in their order. Errors: as above.
Status check_addresses(const plan::Program& program, std::span<void* const> addresses, int device,
                       const PointerClassifier& classify);

// A workspace of the caller's; `bytes` is what is needed, 0 accepts any address, null included.
Status check_workspace(const void* workspace, std::int64_t bytes, int device,
                       const PointerClassifier& classify);

// Whether `value` can be a scalar of type `dtype`. Errors: binding.
Status check_scalar(const std::string& name, DType dtype, double value);

inline constexpr std::int64_t kWorkspaceAlignment = 256;  // bytes; what allocators give

}  // namespace attn::execute
