#include "runtime/io/rows.h"

#include "runtime/io/host_tensor.h"

namespace attn::io {

Rows::Rows(const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& strides)
    : dims_(dims), strides_(strides) {
  if (!dims_.empty()) {
    length_ = dims_.back();
    stride_ = strides_.back();
    dims_.pop_back();
    strides_.pop_back();
  }
  place_.resize(dims_.size());
  remaining_ = element_count(dims_);
}

void Rows::next() {
  --remaining_;
  for (std::size_t axis = dims_.size(); axis-- > 0;) {
    offset_ += strides_[axis];
    if (++place_[axis] < dims_[axis]) return;
    offset_ -= strides_[axis] * dims_[axis];
    place_[axis] = 0;
  }
}

}  // namespace attn::io
