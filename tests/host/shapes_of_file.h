// Sizes at which tests of kernels of warps run a spec.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "compiler/ir/attention.h"

namespace attn::host {

// Calls `add` with words and the attention of each of the spec's shapes, up to `longest` rows and
// columns; twice for a spec of the engine's own tests, which has one. Shapes of the name `without`
// are left out, and sizes that the spec does not support.
using AddAttention = std::function<void(const std::string& text, const ir::Attention& attention)>;
void for_each_shape(const std::string& path, std::int64_t longest, const std::string& without,
                    const AddAttention& add);

}  // namespace attn::host
