// Pointwise forms that lowering may emit: those of forms.def, proven on a device.
#pragma once

#include <compare>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/graph/backend_graph.h"

namespace attn::engines {

struct Form {
  graph::PointwiseMode mode;
  DType compute;
  DType result;

  auto operator<=>(const Form&) const = default;
};

std::span<const Form> proven_forms();
bool is_proven(const Form& form);

}  // namespace attn::engines
