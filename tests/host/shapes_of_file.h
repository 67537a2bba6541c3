// Sizes at which tests of attnc's own kernels run a spec.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "compiler/ir/attention.h"

namespace attn::host {

// With one, specs take turns with sizes, orders of copies and GPUs, so that each of them is run
// with some spec; tests named Nightly run every spec with all (CONTRIBUTING.md).
enum class Turns : std::uint8_t { one, all };

// A number of a name that stays the same: which turn a spec takes.
std::size_t turn_of(std::string_view name);

// Calls `add` with words, the attention and the turn of each of the spec's shapes, up to `longest`
// rows and columns; twice for a spec of the engine's own tests, which has one. Shapes of the name
// `without` are left out, and sizes that the spec does not support. With Turns::one, only the shape
// of the spec's turn.
using AddAttention =
    std::function<void(const std::string& text, const ir::Attention& attention, std::size_t turn)>;
void for_each_shape(const std::string& path, std::int64_t longest, const std::string& without,
                    Turns turns, const AddAttention& add);

}  // namespace attn::host
