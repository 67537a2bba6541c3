// Host memory for the scalars of a program, which cuDNN reads by address at every execute. Internal
// to runtime/execute.
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

// Every scalar has its own 16 bytes, 16-byte aligned, at an address that never changes, even if
// this object is moved.
class Scalars {
 public:
  // Stores the params of `arguments` (checked by check_arguments); has room for all constants of
  // `program`.
  Scalars(const plan::Program& program, const Arguments& arguments);

  void* constant(const plan::ConstantOperand& constant);  // equal constants share one
  void* param(const std::string& name) const;             // null if unknown
  // Later executes read the new value. The name must be known.
  void set_param(const std::string& name, DType dtype, double value);

 private:
  struct alignas(16) Slot {
    std::array<std::byte, 16> bytes{};
  };
  void* add(DType dtype, double value);

  std::vector<Slot> slots_;  // reserved once, never reallocated
  std::map<std::string, void*> params_;
  std::map<std::pair<DType, std::uint64_t>, void*> constants_;  // by bit pattern
};

}  // namespace attn::execute
