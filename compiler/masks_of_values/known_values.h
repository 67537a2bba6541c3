// The values of captured tensors and params, as the mask analysis asks for them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/masks/range.h"
#include "compiler/reference/bindings.h"

namespace attn::masks_of_values {

// Not thread-safe: keeps what it has found, because a search asks for the same elements in many
// boxes.
class KnownValues : public masks::KnownInputs {
 public:
  // `values` must outlive this.
  explicit KnownValues(const reference::Bindings& values);

  std::optional<masks::Range> elements(std::string_view tensor,
                                       std::span<const masks::Range> indexes) const override;
  std::optional<masks::Range> param(std::string_view name) const override;

 private:
  // The elements along the last axis: in order, so that the first and last of a range tell, or
  // with the ranges of 32, 64, .. of them.
  struct Row {
    bool is_known = false, is_sorted = false;
    std::vector<std::vector<masks::Range>> levels{};
  };
  template <typename Element>
  static Row row_of(std::span<const Element> elements);
  template <typename Element>
  static masks::Range range_in(const Row& row, std::span<const Element> elements,
                               std::int64_t first, std::int64_t end);
  struct Tensor {  // of integers or booleans
    const io::HostTensor* of = nullptr;
    std::vector<Row> rows{};  // once one of them is looked at
  };
  static masks::Range range_along(Tensor& tensor, std::int64_t row, const masks::Range& columns);
  // The same; `all` are the tensor's elements.
  template <typename Element>
  static masks::Range range_along(Tensor& tensor, std::span<const Element> all, std::int64_t row,
                                  const masks::Range& columns);

  const reference::Bindings& values_;
  mutable std::map<std::string, Tensor, std::less<>> tensors_;
  // Scratch of a call, kept to avoid allocation.
  mutable std::vector<masks::Range> corners_;
  mutable std::vector<std::int64_t> at_;
};

}  // namespace attn::masks_of_values
