// Where the operands of a step lie, as cuDNN and as a kernel's launch take them: names are looked
// up once, when tensors are bound, so that other tensors can be bound without looking again.
// Private to this room and to benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/execute/arguments.h"
#include "runtime/execute/scalars.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

// What a binding may change.
struct Bases {
  std::span<void* const> tensors;  // in the order of program.tensors
  void* workspace = nullptr;
};

// An operand's address, given the bases.
struct Place {
  enum class Base : std::uint8_t { none, tensor, workspace };

  static Place at(void* address) { return {Base::none, address, 0}; }
  static Place of_tensor(std::size_t index) { return {Base::tensor, nullptr, index}; }
  static Place in_workspace(std::size_t offset) { return {Base::workspace, nullptr, offset}; }

  void* address(const Bases& bases) const {
    if (base == Base::tensor) return static_cast<std::byte*>(bases.tensors[index]) + inside;
    if (base == Base::workspace) return static_cast<std::byte*>(bases.workspace) + index;
    return fixed;
  }
  Place plus(std::size_t bytes) const;

  Base base = Base::none;
  void* fixed = nullptr;
  std::size_t index = 0;   // of the tensor, or bytes into the workspace
  std::size_t inside = 0;  // bytes into the tensor
};

// Where the operands of a program lie. `program` and `scalars` must outlive it.
class Memory {
 public:
  // `counting`: at least plan::counting_elements() numbers, or null.
  Memory(const plan::Program& program, Scalars& scalars, void* counting = nullptr);

  // Internal tensors that lie at `base`, or `offset` bytes behind the start of the workspace.
  void add_internals(const plan::InternalPlaces& places, void* base);
  void add_internals(const plan::InternalPlaces& places, std::int64_t offset);

  // A tensor of the caller's that lies at `address`, whatever is bound.
  void place_tensor(const std::string& name, void* address) { tensors_[name] = Place::at(address); }

  // In a turn of the loop that the step is in. The source must be one of the program's.
  Place place_of(const plan::OperandSource& source, std::int64_t turn = 0) const;

 private:
  struct Find;
  Scalars& scalars_;
  void* counting_;
  std::map<std::string, Place> tensors_;       // internal ones too
  std::map<std::string, std::size_t> widths_;  // bytes of an element
};

// What a step is executed with, but for the bases.
struct CudnnOperands {
  CudnnOperands(const plan::CudnnStep& step, const Memory& memory, std::int64_t turn = 0);

  std::vector<void*> addresses(const Bases& bases) const;

  std::vector<graph::Uid> uids;  // in the order of the step's operands
  std::vector<Place> places;     // of the tensor, or in the scalars; same order
};

struct KernelOperands {
  struct Operand {
    Place place;
    bool by_value = false;  // of a param: what lies there is the argument, not where it lies
  };
  KernelOperands(const plan::DeriveStep& step, const Memory& memory, std::int64_t turn = 0);
  // Of a kernel that writes to `output`, then takes `inputs`.
  KernelOperands(void* output, const std::vector<plan::OperandSource>& inputs,
                 const Memory& memory);

  std::vector<Operand> operands;

 private:
  void add(const plan::OperandSource& source, const Memory& memory, std::int64_t turn = 0);
};

// What cuLaunchKernel wants: the address of each argument's value. Those of params are the scalars'
// places, so that their later values are used. Stays valid when moved.
class KernelArguments {
 public:
  KernelArguments(const KernelOperands& operands, const Bases& bases);
  KernelArguments(KernelArguments&&) noexcept = default;
  KernelArguments& operator=(KernelArguments&&) noexcept = default;

  void* const* data() const { return arguments_.data(); }

 private:
  std::vector<void*> tensors_;  // their addresses are arguments: not resized once filled
  std::vector<void*> arguments_;
};

// Device memory that holds 0, 1, .. as i32, as many as the program reads; null when it reads none.
// Errors: cuda.
Result<cuda::DeviceBuffer> counting_numbers(const plan::Program& program,
                                            const cuda::Device& device,
                                            const cuda::AllocatorPointer& allocator = nullptr);

}  // namespace attn::execute
