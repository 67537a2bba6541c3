// The values of captured tensors and params, as the mask analysis asks for them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/passes/analysis/range.h"
#include "compiler/reference/bindings.h"

namespace attn::pictures {

// Not thread-safe: keeps what it has found, because a search asks for the same elements in many
// boxes.
class KnownValues : public passes::KnownInputs {
 public:
  // `values` must outlive this.
  explicit KnownValues(const reference::Bindings& values);

  std::optional<passes::Range> elements(std::string_view tensor,
                                        std::span<const passes::Range> indexes) const override;
  std::optional<passes::Range> param(std::string_view name) const override;

 private:
  // The elements along the last axis: in order, so that the first and last of a range tell, or
  // with the ranges of 32, 64, .. of them.
  struct Row {
    bool is_known = false, is_sorted = false;
    std::vector<std::vector<passes::Range>> levels{};
  };
  template <typename Element>
  static Row row_of(std::span<const Element> elements);
  template <typename Element>
  static passes::Range range_in(const Row& row, std::span<const Element> elements,
                                std::int64_t first, std::int64_t end);
  struct Tensor {  // of integers or booleans
    const io::HostTensor* of = nullptr;
    std::vector<Row> rows{};  // once one of them is looked at
  };
  static passes::Range range_along(Tensor& tensor, std::int64_t row, const passes::Range& columns);
  // The same; `all` are the tensor's elements.
  template <typename Element>
  static passes::Range range_along(Tensor& tensor, std::span<const Element> all, std::int64_t row,
                                   const passes::Range& columns);

  const reference::Bindings& values_;
  mutable std::map<std::string, Tensor, std::less<>> tensors_;
  // Scratch of a call, kept to avoid allocation.
  mutable std::vector<passes::Range> corners_;
  mutable std::vector<std::int64_t> at_;
};

}  // namespace attn::pictures
