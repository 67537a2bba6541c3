// Copies of page tables whose rows are further apart than the plan's, unless kernels take their
// strides: each execute first copies them to memory of the binding, in the plan's layout. Internal
// to runtime/execute.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/execute/addresses.h"
#include "runtime/execute/arguments.h"
#include "runtime/plan/program.h"

namespace attn::execute {

class RowCopies {
 public:
  // The arguments must be checked. Tables with the plan's layout are not copied. Errors: cuda.
  static Result<RowCopies> make(const plan::Program& program, const Arguments& arguments,
                                const cuda::Device& device,
                                const cuda::AllocatorPointer& allocator);

  // Makes the steps read the copies.
  void place(Memory& memory) const;

  // `tensors`: addresses in the program's order. Errors: cuda.
  Status enqueue(const cuda::Device& device, std::span<void* const> tensors, void* stream) const;

 private:
  struct Copy {
    std::string name;
    std::size_t tensor = 0;  // index in program.tensors
    std::size_t row_bytes = 0;
    std::size_t pitch = 0;
    std::size_t rows = 0;
    cuda::DeviceBuffer to;
  };
  std::vector<Copy> copies_;
};

}  // namespace attn::execute
