// The keys that rows of a gather see. Internal to compiler/reference.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/reference/bindings.h"

namespace attn::reference {

// The positions that the gather lists for a row, in their order; -1 is none. Empty if the row has
// none, and without a gather. The elements were checked (bind), or those beyond the keys are what
// the caller hides.
std::vector<std::int64_t> listed_keys(const ir::Attention& attention, const Bindings& bindings,
                                      std::int64_t batch, std::int64_t row);

}  // namespace attn::reference
