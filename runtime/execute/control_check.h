// Checks what the control tensors of a binding hold. Internal to runtime/execute.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/execute/arguments.h"
#include "runtime/operations/parameters.h"
#include "runtime/plan/program.h"

namespace attn::execute {

// The most rows and keys of a sequence.
struct Capacity {
  std::int64_t rows = 0, keys = 0;
};

// What attn_check_control looks at: lengths, cu_seqlens, and pages in use.
struct ControlCheck {
  // One part of the parameters.
  struct Part {
    const plan::TensorInfo* tensor = nullptr;  // that is named if something is wrong with it
    const plan::TensorInfo* pool = nullptr;    // of a page table
    const char* what = "rows";                 // or keys
  };
  // Without addresses of `found` and `options`. `tensors` and `leading` are in the program's order.
  ControlCheck(const plan::Program& program, const Capacity& capacity,
               std::span<void* const> tensors, std::span<const Leading> leading);

  // The error for what the kernel found, not 0. `element` reads one of a tensor i32.
  using Element = std::function<Result<std::int32_t>(const plan::TensorInfo&, std::int64_t)>;
  Error describe(std::uint64_t found, const Element& element) const;

  operations::ControlParameters parameters{};
  std::vector<Part> parts;

 private:
  struct Adder;
};

}  // namespace attn::execute
