// The operands of a step as cuDNN and as a kernel's launch takes them. Private to this room and to
// benchmarks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/execute/arguments.h"
#include "runtime/execute/scalars.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

// Where the operands of a program lie. Arguments must have been checked.
struct Memory {
  const Arguments& arguments;
  Scalars& scalars;
  void* counting = nullptr;                     // at least plan::counting_elements() numbers
  std::map<std::string, void*> internals = {};  // internal tensors by name
};

// Adds the internal tensors of `places`, which lie at `base`.
void add_internals(Memory& memory, const plan::InternalPlaces& places, void* base);

struct Addresses {
  std::vector<graph::Uid> uids;
  std::vector<void*> pointers;  // of the tensor, or into the scalars; same order
};

// In the order of the step's operands.
Addresses addresses_of(const plan::CudnnStep& step, const Memory& memory);

// What cuLaunchKernel wants of a derive step: the address of each argument's value. Those of params
// are the scalars' places, so that their later values are used. Stays valid when moved.
class KernelArguments {
 public:
  KernelArguments(const plan::DeriveStep& step, const Memory& memory);
  // Of a kernel that writes to `output`, then takes `inputs`.
  KernelArguments(void* output, const std::vector<plan::OperandSource>& inputs,
                  const Memory& memory);
  KernelArguments(KernelArguments&&) noexcept = default;
  KernelArguments& operator=(KernelArguments&&) noexcept = default;

  void* const* data() const { return arguments_.data(); }

 private:
  void add(void* tensor);
  void add(const plan::OperandSource& source, const Memory& memory);

  std::vector<void*> tensors_;  // their addresses are arguments: not resized once filled
  std::vector<void*> arguments_;
};

// Device memory that holds 0, 1, .. as i32, as many as the program reads; null when it reads none.
// Errors: cuda.
Result<cuda::DeviceBuffer> counting_numbers(const plan::Program& program,
                                            const cuda::Device& device);

}  // namespace attn::execute
