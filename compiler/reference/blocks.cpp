#include "compiler/reference/blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

namespace attn::reference {
namespace {

using ir::Dim;
using ir::LayoutKind;

ir::Sizes4 four(const std::vector<std::int64_t>& dims) {
  return {dims[0], dims[1], dims[2], dims[3]};
}

template <typename Visit>
void for_each_index(const ir::Sizes4& dims, const Visit& visit) {
  ir::Sizes4 i{};
  for (i[0] = 0; i[0] < dims[0]; ++i[0]) {
    for (i[1] = 0; i[1] < dims[1]; ++i[1]) {
      for (i[2] = 0; i[2] < dims[2]; ++i[2]) {
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) visit(i);
      }
    }
  }
}

// Which axis of [B,H,S,D] each axis of a copy in memory is.
using Order = std::array<std::size_t, 4>;

Order order_of(const ir::Attention& attention, std::string_view of) {
  switch (attention.layouts.find(of == "do" ? "o" : of)->second.kind) {
    case LayoutKind::bhsd: return {0, 1, 2, 3};
    case LayoutKind::sbhd: return {2, 0, 1, 3};
    default: return {0, 2, 1, 3};
  }
}

// The tensor with its axes in this order.
io::HostTensor permuted(const Order& order, const io::HostTensor& tensor) {
  const std::vector<std::int64_t>& d = tensor.dims;
  const ir::Sizes4 strides{d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
  io::HostTensor result = zeros(tensor.dtype, {d[order[0]], d[order[1]], d[order[2]], d[order[3]]});
  std::size_t element = 0;
  for_each_index(four(result.dims), [&](const ir::Sizes4& at) {
    std::int64_t from = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) from += at[axis] * strides[order[axis]];
    result.values[element++] = tensor.values[static_cast<std::size_t>(from)];
  });
  return result;
}

Order inverse(const Order& order) {
  Order result{};
  for (std::size_t axis = 0; axis < 4; ++axis) result[order[axis]] = axis;
  return result;
}

// Calls visit(begin, size) for each block of a line of elements.
template <typename Visit>
void for_each_block(std::size_t size, const Visit& visit) {
  const auto most = static_cast<std::size_t>(ir::kBlock);
  for (std::size_t begin = 0; begin < size; begin += most)
    visit(begin, std::min(most, size - begin));
}

}  // namespace

void apply_block_scales(const io::HostTensor& scales, bool along_rows, io::HostTensor& tensor) {
  const ir::Sizes4 of_scales = four(scales.dims);
  std::size_t element = 0;
  for_each_index(four(tensor.dims), [&](const ir::Sizes4& at) {
    const std::int64_t place = ir::scale_place(along_rows, of_scales, at);
    tensor.values[element++] *= scales.values[static_cast<std::size_t>(place)];
  });
}

void apply_block_scales(const ir::Attention& attention, Bindings& bindings) {
  for (const ir::Copy& copy : ir::kCopies) {
    const auto found = bindings.tensors.find(copy.name);
    if (found == bindings.tensors.end()) continue;
    found->second = permuted(inverse(order_of(attention, copy.of)), found->second);
  }
  for (const ir::BlockScale& scale : ir::kBlockScales) {
    const auto scales = bindings.tensors.find(scale.name);
    const auto tensor = bindings.tensors.find(scale.of);
    if (scales == bindings.tensors.end() || tensor == bindings.tensors.end()) continue;
    apply_block_scales(scales->second, scale.along_rows, tensor->second);
  }
}

io::HostTensor in_layout(const ir::Attention& attention, const ir::Copy& copy,
                         const io::HostTensor& tensor) {
  return permuted(order_of(attention, copy.of), tensor);
}

BlockSlopes::BlockSlopes(const Problem& problem)
    : problem_(problem), row_(static_cast<std::size_t>(problem.size(Dim::Skv)), 0.0) {}

void BlockSlopes::begin_row() { std::ranges::fill(row_, 0.0); }

void BlockSlopes::end_row(const RowPlace& place, GradientSums& sums) {
  block_.push_back(row_);
  add_to_q(place, sums.find("q")->second);
  std::ranges::fill(row_, 0.0);
  const bool is_last = place.row + 1 == problem_.size(Dim::Sq);
  if (!is_last && (place.row + 1) % ir::kBlock != 0) return;
  add_to_k(place, sums.find("k")->second);
  block_.clear();
}

void BlockSlopes::add_to_q(const RowPlace& place, io::HostTensor& d_q) {
  const DType dtype = problem_.attention.dtype_of("do");
  if (!problem_.unrounded) {
    for_each_block(row_.size(), [&](std::size_t begin, std::size_t size) {
      ir::round_block(std::span(row_).subspan(begin, size), dtype);
    });
  }
  const io::HostTensor& keys = problem_.tensor("k_t");
  double* to = d_q.values.data() + row_offset(d_q, place.batch, place.head, place.row);
  for (std::size_t column = 0; column < row_.size(); ++column) {
    if (row_[column] == 0) continue;
    const double* k =
        row_of(keys, place.batch, place.head / problem_.group(), static_cast<std::int64_t>(column));
    for (std::int64_t d = 0; d < problem_.size(Dim::Dqk); ++d) to[d] += row_[column] * k[d];
  }
}

void BlockSlopes::add_to_k(const RowPlace& place, io::HostTensor& d_k) {
  const io::HostTensor& queries = problem_.tensor("q_t");
  const auto rows = static_cast<std::int64_t>(block_.size());
  std::vector<double> slopes(block_.size());
  for (std::size_t column = 0; column < row_.size(); ++column) {
    for (std::size_t row = 0; row < block_.size(); ++row) slopes[row] = block_[row][column];
    if (!problem_.unrounded) ir::round_block(slopes, problem_.attention.dtype_of("do"));
    double* to = d_k.values.data() + row_offset(d_k, place.batch, place.head / problem_.group(),
                                                static_cast<std::int64_t>(column));
    for (std::int64_t row = 0; row < rows; ++row) {
      const double slope = slopes[static_cast<std::size_t>(row)];
      if (slope == 0) continue;
      const double* q = row_of(queries, place.batch, place.head, place.row - rows + 1 + row);
      for (std::int64_t d = 0; d < problem_.size(Dim::Dqk); ++d) to[d] += slope * q[d];
    }
  }
}

namespace {

const ir::BlockScale& scale_of(std::string_view tensor) {
  return *std::ranges::find(ir::kBlockScales, tensor, &ir::BlockScale::of);
}

// Divides the elements of each block by a new scale and rounds them; the scales.
io::HostTensor quantize(const ir::BlockScale& scale, DType dtype, io::HostTensor& x) {
  const ir::Sizes4 of{x.dims[0], x.dims[1], x.dims[2], x.dims[3]};
  const ir::Sizes4 dims = ir::scale_dims(scale.along_rows, of);
  io::HostTensor scales = zeros(DType::e8m0, {dims.begin(), dims.end()});
  const auto at = [&](std::size_t element) -> double& {
    auto left = static_cast<std::int64_t>(element);
    ir::Sizes4 index{};
    for (std::size_t axis = 4; axis-- > 0; left /= of[axis]) index[axis] = left % of[axis];
    const std::int64_t place = ir::scale_place(scale.along_rows, dims, index);
    return scales.values[static_cast<std::size_t>(place)];
  };
  for (std::size_t i = 0; i < x.values.size(); ++i) at(i) = std::max(at(i), std::abs(x.values[i]));
  for (double& amax : scales.values) amax = ir::block_scale(amax, dtype);
  for (std::size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = round_to(dtype, x.values[i] / at(i));
  return scales;
}

}  // namespace

BlockCopy make_copy(const ir::Attention& attention, const ir::Copy& copy, io::HostTensor x,
                    const io::HostTensor& scales) {
  const DType dtype = attention.dtype_of(copy.of);
  for (double& value : x.values) value = round_to(dtype, value);
  apply_block_scales(scales, scale_of(copy.of).along_rows, x);
  BlockCopy made;
  if (copy.is_narrow) {
    x.dtype = dtype;
    made.scales = quantize(scale_of(copy.name), dtype, x);
  } else {
    x.dtype = attention.dtype_of("o");
    for (double& value : x.values) value = round_to(x.dtype, value);
  }
  made.elements = in_layout(attention, copy, x);
  return made;
}

}  // namespace attn::reference
