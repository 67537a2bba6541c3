#include "runtime/execute/row_copies.h"

#include <algorithm>
#include <utility>

#include "runtime/execute/checks.h"

namespace attn::execute {
namespace {

const TensorView* view_of(const Arguments& arguments, const std::string& name) {
  const auto found = std::ranges::find(arguments.tensors(), name, &Arguments::Tensor::name);
  return found == arguments.tensors().end() || found->view.as_planned ? nullptr : &found->view;
}

// Whether the row stride differs from the plan's.
bool has_other_rows(const plan::TensorInfo& table, const TensorView& view) {
  return table.dims[0] > 1 && view.strides[0] != table.strides[0];
}

}  // namespace

Result<RowCopies> RowCopies::make(const plan::Program& program, const Arguments& arguments,
                                  const cuda::Device& device,
                                  const cuda::AllocatorPointer& allocator) {
  RowCopies all;
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    const plan::TensorInfo& table = program.tensors[i];
    const TensorView* view = view_of(arguments, table.name);
    const bool is_copied = view != nullptr && is_page_table(program, table) &&
                           !table.bound_strides && has_other_rows(table, *view);
    if (!is_copied) continue;
    const std::size_t width = size_of(table.dtype);
    Copy copy{table.name,
              i,
              static_cast<std::size_t>(table.dims[1]) * width,
              static_cast<std::size_t>(view->strides[0]) * width,
              static_cast<std::size_t>(table.dims[0]),
              {}};
    ATTN_ASSIGN(copy.to,
                cuda::DeviceBuffer::allocate(device, copy.row_bytes * copy.rows, allocator));
    all.copies_.push_back(std::move(copy));
  }
  return all;
}

void RowCopies::place(Memory& memory) const {
  for (const Copy& copy : copies_) memory.place_tensor(copy.name, copy.to.data());
}

Status RowCopies::enqueue(const cuda::Device& device, std::span<void* const> tensors,
                          void* stream) const {
  for (const Copy& copy : copies_) {
    ATTN_RETURN_IF_ERROR(cuda::copy_rows(device, stream, copy.to.data(), tensors[copy.tensor],
                                         copy.row_bytes, copy.pitch, copy.rows));
  }
  return {};
}

}  // namespace attn::execute
