// The elements of a captured tensor whose spec gives a default, for calls that bind no value.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::reference {

// A default, as far as its elements are valid.
struct EvaluatedDefault {
  struct BadElement {
    std::optional<double> value;  // that the dtype cannot hold; nullopt: it has none
  };
  io::HostTensor values;          // those before the bad one; dims are those of the whole tensor
  std::optional<BadElement> bad;  // the element after `values`
};

// Evaluates at most the first `most` elements. The tensor must have a fallback and belong to the
// attention. Errors: invalid_argument (an open dimension in an extent).
Result<EvaluatedDefault> evaluate_default(
    const ir::Attention& attention, const ir::CapturedTensor& tensor,
    std::size_t most = std::numeric_limits<std::size_t>::max());

// The tensor must have a fallback and belong to the attention. Errors: invalid_argument (an open
// dimension in an extent); binding (an element without a value, or one that its dtype cannot hold).
Result<io::HostTensor> default_values(const ir::Attention& attention,
                                      const ir::CapturedTensor& tensor);

struct BrokenFact {
  std::size_t element = 0;  // the first that breaks it, in logical order
  std::string what;         // without the name of the tensor: "is declared monotone, but ..."
  std::string help;
};

// The first fact that `values` break: `monotone`, `runs`, and of lengths that they are within their
// dimension. A fact that depends on an open dimension is not checked.
std::optional<BrokenFact> broken_fact(const ir::Attention& attention,
                                      const ir::CapturedTensor& tensor,
                                      const io::HostTensor& values);

}  // namespace attn::reference
