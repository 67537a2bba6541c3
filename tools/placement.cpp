#include "tools/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "compiler/ir/attention.h"
#include "compiler/ir/cache_scales.h"
#include "runtime/base/row_format.h"
#include "runtime/io/element.h"
#include "runtime/io/layout.h"

namespace attn::tools {
namespace {

using Dims = std::vector<std::int64_t>;

// Fill byte of memory without rows: 195 in bf16, 3.6 in f16.
constexpr std::byte kUnused{0x43};
constexpr std::int64_t kNoPage = -1;
constexpr std::int64_t kBytesApart = 16, kEntriesApart = 3;  // gaps of tensors with other strides

// What element i of a row without use holds: rows are all NaN, or have one infinity, or the largest
// numbers, whose products are infinite. Integers are the largest ones.
double without_use(DType dtype, std::size_t row, std::size_t i) {
  if (!is_float(dtype)) return i % 2 == 0 ? 127 : -128;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::size_t kind = row % 4;
  if (kind == 0) return std::numeric_limits<double>::quiet_NaN();
  if (kind == 3) return i % 2 == 0 ? 3e38 : -3e38;
  return i > 0 ? 0 : kind == 1 ? kInfinity : -kInfinity;
}

// Entries of a page table without use, by their number.
std::int64_t page_without_use(std::size_t entry, std::int64_t pages) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int32_t>::min(),
                         kHighest = std::numeric_limits<std::int32_t>::max();
  const std::int64_t kinds[] = {-1, kLowest, kHighest, pages, 0, -pages, 0x43434343};
  return kinds[entry % std::size(kinds)];
}

bool is_page_table(const plan::TensorInfo& tensor) { return tensor.dims.size() == 2; }
bool is_pool(const plan::TensorInfo& tensor) {
  return !tensor.addressed_by.starts_with("cu_seqlens");
}

std::size_t elements_of(const plan::TensorInfo& tensor) {
  return static_cast<std::size_t>(*io::storage_elements(tensor.dims, tensor.strides));
}

Dims to_integers(const std::vector<double>& values) {
  Dims integers;
  for (const double value : values) integers.push_back(static_cast<std::int64_t>(value));
  return integers;
}

// 0 .. count - 1 in scrambled order: an odd step modulo a power of two visits each place once.
Dims shuffled(std::int64_t count) {
  std::int64_t size = 1;
  while (size < count) size *= 2;
  Dims order;
  for (std::int64_t i = 0, place = size / 2; i < size; ++i, place = (place + 5) % size) {
    if (place < count) order.push_back(place);
  }
  return order;
}

Result<std::vector<std::byte>> pack_integers(const Dims& values, const plan::TensorInfo& tensor) {
  return io::pack(std::vector<double>(values.begin(), values.end()), tensor.dims, tensor.strides,
                  tensor.dtype);
}

}  // namespace

plan::Program with_other_strides(plan::Program program) {
  for (plan::TensorInfo& tensor : program.tensors) {
    if (!tensor.bound_strides) continue;
    Dims& strides = tensor.strides;
    if (is_page_table(tensor)) {
      strides[0] += kEntriesApart;
      continue;
    }
    const std::int64_t gap = kBytesApart / static_cast<std::int64_t>(size_of(tensor.dtype));
    strides[1] = tensor.dims[3] + gap;
    strides[2] = (tensor.dims[1] + 1) * strides[1];
    strides[0] = (tensor.dims[2] + 1) * strides[2];
    if (is_pool(tensor)) ++tensor.dims[0];
  }
  return program;
}

Result<Placement> Placement::create(const plan::Program& program, const reference::Inputs& inputs,
                                    Unused unused) {
  Placement placement(program, inputs, unused);
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (tensor.role == plan::TensorRole::control) {
      ATTN_RETURN_IF_ERROR(placement.place(tensor));
    }
  }
  return placement;
}

// Sets the values of a control tensor: seed, offset, cu_seqlens or a page table.
Status Placement::place(const plan::TensorInfo& tensor) {
  Dims& values = controls_[tensor.name];
  if (const auto param = inputs_.params.find(tensor.name); param != inputs_.params.end()) {
    values = {static_cast<std::int64_t>(param->second)};
    return {};
  }
  if (is_page_table(tensor)) return place_pages(tensor);
  const bool of_q = tensor.name.ends_with("_q");
  values = {0};
  for (const std::int64_t length :
       to_integers(inputs_.tensors.at(of_q ? "lengths_q" : "lengths_kv").values)) {
    values.push_back(values.back() + length);
  }
  return {};
}

const plan::TensorInfo& Placement::pool_of(const plan::TensorInfo& table) const {
  return *std::ranges::find(program_.tensors, table.name, &plan::TensorInfo::addressed_by);
}

Status Placement::place_pages(const plan::TensorInfo& table) {
  const plan::TensorInfo& pool = pool_of(table);
  const std::int64_t page = pool.dims[2], columns = table.dims[1];
  Dims lengths(static_cast<std::size_t>(table.dims[0]), columns * page);
  if (const auto given = inputs_.tensors.find("lengths_kv"); given != inputs_.tensors.end()) {
    lengths = to_integers(given->second.values);
  }
  Dims order = shuffled(pool.dims[0]);
  if (table.name.ends_with("_v")) std::ranges::reverse(order);  // different from k
  std::ranges::stable_partition(order, [](std::int64_t number) { return number != 0; });
  std::size_t next = 0;
  Dims& values = controls_[table.name];
  for (const std::int64_t length : lengths) {
    const std::int64_t used = (length + page - 1) / page;
    if (next + static_cast<std::size_t>(used) > order.size()) {
      return {
          ErrorCode::invalid_argument,
          fmt::format("the lengths need more pages than the {} of `{}`", pool.dims[0], pool.name)};
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      values.push_back(i < used ? order[next++] : kNoPage);
    }
  }
  return {};
}

template <typename Visit>
void Placement::for_each_place(const plan::TensorInfo& tensor, const Dims& dims,
                               const Visit& visit) const {
  const Dims& control = controls_.at(tensor.addressed_by);
  const bool paged = is_pool(tensor);
  const std::int64_t depth = dims.size() > 3 ? dims[3] : 1;
  const std::int64_t page = paged ? tensor.dims[2] : 1;
  const std::int64_t pages = paged ? (dims[2] + page - 1) / page : 0;
  std::int64_t element = 0;
  for (std::int64_t b = 0; b < dims[0]; ++b) {
    for (std::int64_t h = 0; h < dims[1]; ++h) {
      for (std::int64_t s = 0; s < dims[2]; ++s, element += depth) {
        std::int64_t offset = h * tensor.strides[1];
        const auto entry = static_cast<std::size_t>(paged ? b * pages + s / page : b);
        if (paged && control[entry] == kNoPage) continue;
        if (paged) {
          offset += control[entry] * tensor.strides[0] + s % page * tensor.strides[2];
        } else if (s < control[entry + 1] - control[entry]) {
          offset += (control[entry] + s) * tensor.strides[2];
        } else {
          continue;
        }
        for (std::int64_t d = 0; d < depth; ++d) {
          visit(element + d, offset + (depth > 1 ? d * tensor.strides[3] : 0));
        }
      }
    }
  }
}

// The given values, where rows past the lengths are as Unused says.
io::HostTensor Placement::with_unused(const std::string& name) const {
  io::HostTensor tensor = inputs_.tensors.at(name);
  const bool of_rows = name == "q" || name == kCotangent || name == kCotangentOfLse,
             of_keys = name == "k" || name == "v" ||
                       (ir::is_cache_scale(name) && tensor.dims.size() == 3);
  const auto lengths = inputs_.tensors.find(of_rows ? "lengths_q" : "lengths_kv");
  if (unused_ == Unused::finite || !(of_rows || of_keys) || lengths == inputs_.tensors.end())
    return tensor;
  const auto heads = static_cast<std::size_t>(tensor.dims[1]),
             rows = static_cast<std::size_t>(tensor.dims[2]),
             row = static_cast<std::size_t>(tensor.dims.size() > 3 ? tensor.dims[3] : 1);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const double length = lengths->second.values[i / (heads * rows * row)];
    if (static_cast<double>(i / row % rows) >= length)
      tensor.values[i] = without_use(tensor.dtype, i / row, i % row);
  }
  return tensor;
}

Result<std::vector<std::byte>> Placement::bytes_of(const plan::TensorInfo& tensor) const {
  if (const auto control = controls_.find(tensor.name); control != controls_.end()) {
    Dims values = control->second;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!is_page_table(tensor) || values[i] != kNoPage) continue;
      values[i] = unused_ == Unused::anything ? page_without_use(i, pool_of(tensor).dims[0]) : 0;
    }
    return pack_integers(values, tensor);
  }
  const io::HostTensor values = with_unused(tensor.name);
  if (tensor.addressed_by.empty()) {
    return io::pack(values, tensor.dims, tensor.strides, tensor.dtype);
  }
  if (!tensor.rows.empty()) return formatted(tensor, values);
  const std::size_t size = size_of(tensor.dtype), count = elements_of(tensor),
                    row = static_cast<std::size_t>(tensor.dims.back());
  std::vector<std::byte> bytes(count * size, kUnused);
  for (std::size_t i = 0; i < count && unused_ == Unused::anything; ++i)
    io::store(tensor.dtype, without_use(tensor.dtype, i / row, i % row), bytes.data() + i * size);
  for_each_place(tensor, values.dims, [&](std::int64_t element, std::int64_t offset) {
    io::store(tensor.dtype, values.values[static_cast<std::size_t>(element)],
              bytes.data() + static_cast<std::size_t>(offset) * size);
  });
  return bytes;
}

// Rows of a format; those without use are NaN in all of their parts.
std::vector<std::byte> Placement::formatted(const plan::TensorInfo& tensor,
                                            const io::HostTensor& values) const {
  constexpr std::byte kNan{0xff};
  const RowFormat format = *parse_row_format(tensor.rows);
  const auto columns = static_cast<std::size_t>(info(format).columns());
  std::vector<std::byte> bytes(elements_of(tensor),
                               unused_ == Unused::anything ? kNan : std::byte{0});
  Dims rows = values.dims;
  rows.back() = 1;
  for_each_place(tensor, rows, [&](std::int64_t row, std::int64_t offset) {
    const auto first = static_cast<std::size_t>(row) * columns;
    store_row(format, std::span(values.values).subspan(first, columns), bytes.data() + offset);
  });
  return bytes;
}

Result<io::HostTensor> Placement::logical(const plan::TensorInfo& tensor,
                                          std::span<const std::byte> bytes) const {
  if (tensor.addressed_by.empty()) {
    return io::unpack(bytes, tensor.dims, tensor.strides, tensor.dtype);
  }
  const double nothing =
      ir::is_logarithm(tensor.name) ? -std::numeric_limits<double>::infinity() : 0;
  io::HostTensor values{tensor.dtype, tensor.dims, {}};
  values.values.assign(static_cast<std::size_t>(io::element_count(tensor.dims)), nothing);
  const std::size_t size = size_of(tensor.dtype);
  for_each_place(tensor, tensor.dims, [&](std::int64_t element, std::int64_t offset) {
    values.values[static_cast<std::size_t>(element)] =
        io::load(tensor.dtype, bytes.data() + static_cast<std::size_t>(offset) * size);
  });
  return values;
}

}  // namespace attn::tools
