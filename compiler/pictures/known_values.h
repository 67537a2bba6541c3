// The values of captured tensors and params, as the mask analysis asks for them.
#pragma once

#include <map>
#include <vector>

#include "compiler/passes/analysis/range.h"
#include "compiler/reference/bindings.h"

namespace attn::pictures {

// Not thread-safe: keeps the answers, because a search asks for the same elements in many boxes.
class KnownValues : public passes::KnownInputs {
 public:
  // `values` must outlive this.
  explicit KnownValues(const reference::Bindings& values) : values_(values) {}

  std::optional<passes::Range> elements(std::string_view tensor,
                                        std::span<const passes::Range> indexes) const override;
  std::optional<passes::Range> param(std::string_view name) const override;

 private:
  // The first and last index along each axis.
  using Corners = std::vector<std::int64_t>;

  const reference::Bindings& values_;
  mutable std::map<std::string, std::map<Corners, passes::Range>, std::less<>> kept_;
};

}  // namespace attn::pictures
