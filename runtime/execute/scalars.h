// Host memory for the scalars of a program, which cuDNN reads by address at every execute. Private
// to this room.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/execute/arguments.h"
#include "runtime/plan/program.h"

namespace attn::execute {

// Every scalar has 16 bytes of its own, 16-byte aligned, whose address never changes, not even when
// the storage is moved.
class Scalars {
 public:
  // The params of `arguments` (checked: check_arguments) and room for all constants of `program`.
  Scalars(const plan::Program& program, const Arguments& arguments);

  void* constant(const plan::ConstantOperand& constant);  // equal constants share a place
  void* param(const std::string& name) const;             // null when there is none
  // Later executes read the new value. Requires a known name.
  void set_param(const std::string& name, DType dtype, double value);

 private:
  struct alignas(16) Slot {
    std::array<std::byte, 16> bytes{};
  };
  void* add(DType dtype, double value);

  std::vector<Slot> slots_;  // reserved once, never grown beyond
  std::map<std::string, void*> params_;
  std::map<std::pair<DType, std::uint64_t>, void*> constants_;  // by the bits of the value
};

}  // namespace attn::execute
