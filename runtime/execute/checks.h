// Checks whether a plan fits this machine, and arguments fit a plan. Pure functions, so that they
// can be tested without a device. Internal to runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/cuda/memory.h"
#include "runtime/execute/arguments.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

// Errors: plan_device if the plan is for another GPU architecture.
Status check_device(const plan::Plan& plan, const std::string& device_name, std::int64_t sm);

// Errors: plan_version if the cuDNN version differs: cuDNN rejects or misreads plans of other
// versions.
Status check_version(const plan::Plan& plan, std::int64_t cudnn_version);

// The checks also return its errors.
using PointerClassifier = std::function<Result<cuda::PointerInfo>(const void*)>;

// Whether the tensor is the page table of another tensor.
bool is_page_table(const plan::Program& program, const plan::TensorInfo& tensor);

// Whether the stride of a tensor's axis means anything: that of one element does not, and neither
// does that of the batches of packed rows. One row of a batch is one of many.
bool has_stride(const plan::Program& program, const plan::TensorInfo& tensor, std::size_t axis);

// Whether the program has every given tensor with the same dtype, dims, and strides that mean
// something; of one with bound strides, which has many forms, the same dtype and rank. Addresses do
// not count.
bool has_tensors(const plan::Program& program, const Arguments& arguments);

// Checks that every tensor and param of the program is given, and no others; that dtypes, dims and
// strides agree (but for those that mean nothing); that addresses are not null, are aligned,
// and are in memory of device `device` (or managed memory) up to the tensor's end, unless another
// tensor says which parts are used; and that nothing is written at the address of another tensor. A
// page pool may have fewer pages than the plan's, and the rows of a page table may be further
// apart. Strides that are bound are multiples of 16 bytes, and elements of a row are adjacent.
// Errors: binding; the message is the first error, the notes are the others.
Status check_arguments(const plan::Program& program, const Arguments& arguments, int device,
                       const PointerClassifier& classify);

// Checks one tensor of the program, with dims of its rank, as check_arguments does; without
// `classify` its address is not looked at. Errors: as above.
Status check_tensor(const plan::Program& program, const plan::TensorInfo& tensor,
                    const TensorView& given, int device, const PointerClassifier& classify);

// Checks one address for each tensor of the program, in order; of those that are the same in
// `known`, which were checked before, only that nothing is written there. Errors: as above.
Status check_addresses(const plan::Program& program, std::span<void* const> addresses, int device,
                       const PointerClassifier& classify, std::span<void* const> known = {});

// Checks a caller's workspace of `bytes` bytes; if that is 0, any address is accepted, even null.
Status check_workspace(const void* workspace, std::int64_t bytes, int device,
                       const PointerClassifier& classify);

// Whether `value` can be a scalar of type `dtype`. Errors: binding.
Status check_scalar(const std::string& name, DType dtype, double value);

inline constexpr std::int64_t kWorkspaceAlignment = 256;  // bytes; allocators guarantee it

}  // namespace attn::execute
