// The elements of a captured tensor whose spec gives a default, for calls that bind no value.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::reference {

// The tensor must have a fallback and belong to the attention. Errors: invalid_argument (an open
// dimension in an extent); binding (an element without a value, or one that its dtype cannot hold).
Result<io::HostTensor> default_values(const ir::Attention& attention,
                                      const ir::CapturedTensor& tensor);

}  // namespace attn::reference
