// Page tables whose rows lie further apart than the plan's: copied before each execute into memory
// of the binding's, where cuDNN finds them as the plan says. Private to this room.
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
  // Of arguments that were checked: none for tables that lie as the plan says. Errors: cuda.
  static Result<RowCopies> make(const plan::Program& program, const Arguments& arguments,
                                const cuda::Device& device,
                                const cuda::AllocatorPointer& allocator);

  // The steps read the copies.
  void place(Memory& memory) const;

  // `tensors`: addresses in the order of the program's. Errors: cuda.
  Status enqueue(const cuda::Device& device, std::span<void* const> tensors, void* stream) const;

 private:
  struct Copy {
    std::string name;
    std::size_t tensor = 0;  // its place in program.tensors
    std::size_t row_bytes = 0;
    std::size_t pitch = 0;
    std::size_t rows = 0;
    cuda::DeviceBuffer to;
  };
  std::vector<Copy> copies_;
};

}  // namespace attn::execute
