// What a spec declares about the values of a tensor, and whether they keep to it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/io/host_tensor.h"

namespace attn::reference {

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
