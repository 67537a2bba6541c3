// Addresses of step operands, in the forms that cuDNN and kernel launches take. Names are looked up
// once, at binding, so that later address changes need no look-up. Internal to runtime/execute and
// benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/cuda/tensor_map.h"
#include "runtime/execute/arguments.h"
#include "runtime/execute/scalars.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

// Memory that holds the tensors of a plan::Schedule; null: the workspace does.
struct ScheduleMemory {
  void* tensor = nullptr;
  void* options = nullptr;
  void* parts = nullptr;
  bool operator==(const ScheduleMemory&) const = default;
};
using ScheduleTensor = void* ScheduleMemory::*;

// The addresses that a binding may change.
struct Bases {
  std::span<void* const> tensors;  // as in program.tensors
  void* workspace = nullptr;
  ScheduleMemory schedule{};
};

// An operand's address, relative to the bases.
struct Place {
  enum class Base : std::uint8_t { none, tensor, workspace };

  static Place at(void* address) { return {Base::none, address, 0}; }
  static Place of_tensor(std::size_t index) { return {Base::tensor, nullptr, index}; }
  static Place in_workspace(std::size_t offset) { return {Base::workspace, nullptr, offset}; }

  void* address(const Bases& bases) const {
    void* const own = scheduled != nullptr ? bases.schedule.*scheduled : nullptr;
    return static_cast<std::byte*>(own != nullptr ? own : of_base(bases)) + inside;
  }
  Place plus(std::size_t bytes) const;
  // Whether bases decide the address; else it is fixed_address().
  bool moves() const { return base != Base::none || scheduled != nullptr; }
  void* fixed_address() const { return static_cast<std::byte*>(fixed) + inside; }

  Base base = Base::none;
  void* fixed = nullptr;
  std::size_t index = 0;               // index of the tensor, or bytes into the workspace
  std::size_t inside = 0;              // bytes into the tensor
  ScheduleTensor scheduled = nullptr;  // replaces the base, if there is a schedule

 private:
  void* of_base(const Bases& bases) const {
    if (base == Base::tensor) return bases.tensors[index];
    return base == Base::none ? fixed : static_cast<std::byte*>(bases.workspace) + index;
  }
};

// The addresses of a program's operands. `program` and `scalars` must outlive it.
class Memory {
 public:
  // `iota`: an iota of at least plan::iota_elements() elements, or null.
  Memory(const plan::Program& program, Scalars& scalars, void* iota = nullptr);

  // Adds internal tensors at `base`, or at `offset` bytes into the workspace.
  void add_internals(const plan::InternalPlaces& places, void* base);
  void add_internals(const plan::InternalPlaces& places, std::int64_t offset);

  // Lets a schedule's memory replace that of the internal tensors, which must have been added.
  void set_schedule(const plan::Schedule& schedule);

  // Says how tensors are bound, whose names the program has. They must outlive this, and operands.
  void set_bound(std::span<const plan::TensorInfo> tensors);

  // Places a caller's tensor at a fixed `address`, whatever is bound.
  void place_tensor(const std::string& name, void* address) { tensors_[name] = Place::at(address); }

  // The place in iteration `turn` of the step's loop. The source must belong to the program.
  Place place_of(const plan::OperandSource& source, std::int64_t turn = 0) const;
  // The tensor must be the program's; as it is bound, if that was said.
  const plan::TensorInfo& tensor(const std::string& name) const { return *infos_.at(name); }

 private:
  struct Find;
  Scalars& scalars_;
  void* iota_;
  std::map<std::string, Place> tensors_;  // including internal ones
  std::map<std::string, const plan::TensorInfo*> infos_;
};

// The operands of a cuDNN step, relative to the bases.
struct CudnnOperands {
  CudnnOperands(const plan::CudnnStep& step, const Memory& memory, std::int64_t turn = 0);

  std::vector<void*> addresses(const Bases& bases) const;

  std::vector<graph::Uid> uids;  // in the order of the step's operands
  std::vector<Place> places;     // of the tensor or scalar; same order
};

// The operands of one launch, relative to the bases.
struct LaunchOperands {
  struct Operand {
    Place place;
    bool by_value = false;  // the argument is the value there, a scalar
    std::shared_ptr<const plan::TensorMapArgument>
        map{};                                     // the argument is this map of the address
    DType dtype = DType::f32;                      // of the map's elements
    std::shared_ptr<const std::int64_t> number{};  // that is there, if nothing else owns it
  };
  // `before`: the address that the first argument is, before those of the launch, unless null.
  LaunchOperands(const plan::Launch& launch, const Memory& memory, std::int64_t turn = 0,
                 void* before = nullptr);

  std::vector<Operand> operands;
  std::vector<std::size_t> moving;  // indices of those that are an address which bases decide
  std::vector<std::size_t> maps;    // and of those that are maps
};

// Tensor maps of one argument: of the address that it has, and of those that it had of late.
class KeptMaps {
 public:
  // `kept`: how many addresses at least have room, if they differ by chance.
  explicit KeptMaps(std::size_t kept);

  // Encodes the map for an address, unless there is one; it is not taken yet, and the one that was
  // stays. Allocates nothing. Errors: cuda, if the driver refuses the address.
  Status prepare(const LaunchOperands::Operand& operand, void* address, const cuda::Device& device);
  // Takes the map that was prepared last. Valid until the next prepare() after it.
  cuda::TensorMap* take() {
    taken_ = prepared_;
    return &maps_[taken_];
  }

 private:
  std::vector<void*> addresses_;       // two for each hash; null: none
  std::vector<cuda::TensorMap> maps_;  // likewise
  std::size_t taken_ = 0, prepared_ = 0;
  std::size_t turn_ = 0;  // which of two that are in the way is replaced
};

// The argument list of a launch: the address of each argument's value. Params point to the scalars,
// and strides to the tensors as they are bound, so later values are used. Stays valid when moved.
class LaunchArguments {
 public:
  // Has no addresses that bases decide, and no maps, before take(). `kept`: how many addresses of a
  // map are remembered, about.
  explicit LaunchArguments(const LaunchOperands& operands, std::size_t kept = 1);
  // Makes those for these bases. Errors: those of prepare().
  static Result<LaunchArguments> make(const LaunchOperands& operands, const Bases& bases,
                                      const cuda::Device& device);
  LaunchArguments(LaunchArguments&&) noexcept = default;
  LaunchArguments& operator=(LaunchArguments&&) noexcept = default;

  // Sees to it that there are maps of all tensors as they are with these bases. Arguments change in
  // take() alone, which must follow with the same bases. Allocates nothing. Errors: cuda, if a map
  // cannot be made for an address.
  Status prepare(const LaunchOperands& operands, const Bases& bases, const cuda::Device& device);
  void take(const LaunchOperands& operands, const Bases& bases);

  void* const* data() const { return arguments_.data(); }

 private:
  std::vector<void*> addresses_;  // of each operand, to which arguments point; never resized
  std::vector<KeptMaps> maps_;
  std::vector<void*> arguments_;
};

// The operands of a kernel step.
struct KernelOperands {
  struct Zeroed {
    Place place;
    std::size_t bytes = 0;
    bool is_for_first = false;  // no launch but the first has it
  };
  KernelOperands(const plan::KernelStep& step, const Memory& memory, std::int64_t turn = 0);

  std::vector<Zeroed> zeroed;
  std::vector<LaunchOperands> launches;
  bool makes_schedule = false;  // the first launch does
};

// The same for some addresses. With a schedule, which was made before, the launch that would make
// it is left out.
struct KernelArguments {
  explicit KernelArguments(const KernelOperands& operands, std::size_t kept = 1);
  static Result<KernelArguments> make(const KernelOperands& operands, const Bases& bases,
                                      const cuda::Device& device);
  // Prepare, and take, those of all launches.
  Status prepare(const KernelOperands& operands, const Bases& bases, const cuda::Device& device);
  void take(const KernelOperands& operands, const Bases& bases);

  std::size_t first = 0;        // launch that is not left out
  std::vector<void*> zeroed{};  // addresses, as in the operands; null: left out
  std::vector<LaunchArguments> launches{};
};

// Device memory with the i32 iota that the program reads; null if it reads none. Errors: cuda.
Result<cuda::DeviceBuffer> make_iota(const plan::Program& program, const cuda::Device& device,
                                     const cuda::AllocatorPointer& allocator = nullptr);

}  // namespace attn::execute
