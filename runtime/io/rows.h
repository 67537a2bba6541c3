// Walks a strided tensor in row-major order, one row (last dimension) at a time. Internal to
// runtime/io.
#pragma once

#include <cstdint>
#include <vector>

namespace attn::io {

class Rows {
 public:
  // `dims` and `strides` have the same rank, which may be 0. A dim of 0 means no rows or empty
  // rows.
  Rows(const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& strides);

  bool done() const { return remaining_ == 0; }
  void next();
  std::int64_t offset() const { return offset_; }  // of the first element of the row
  std::int64_t length() const { return length_; }
  std::int64_t stride() const { return stride_; }

 private:
  std::vector<std::int64_t> dims_;  // all axes except the last
  std::vector<std::int64_t> strides_;
  std::vector<std::int64_t> place_;
  std::int64_t length_ = 1;
  std::int64_t stride_ = 1;
  std::int64_t offset_ = 0;
  std::int64_t remaining_ = 1;
};

// Calls visit(logical index, storage offset) for every element, in row-major order.
template <typename Visit>
void for_each_element(const std::vector<std::int64_t>& dims,
                      const std::vector<std::int64_t>& strides, Visit&& visit) {
  std::int64_t index = 0;
  for (Rows row(dims, strides); !row.done(); row.next()) {
    std::int64_t offset = row.offset();
    for (std::int64_t i = 0; i < row.length(); ++i, offset += row.stride()) visit(index++, offset);
  }
}

}  // namespace attn::io
