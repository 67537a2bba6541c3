// Checks that all of attnc's own kernels make. Errors: unsupported.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::engines::native {

// Checks that the tensor memory accelerator can read the rows of "q", "k", "v" or "do".
Status check_layout(const ir::Attention& attention, const std::string& name);

// Dqk or Dv: `most` at most in this direction, in words; and a multiple of 8 besides.
Status check_most_depth(const ir::Attention& attention, ir::Dim dim, std::int64_t most,
                        std::string_view direction);
Status check_depth(const ir::Attention& attention, ir::Dim dim, std::int64_t most,
                   std::string_view direction);

// Some rows and keys, and not too many.
Status check_clauses(const ir::Attention& attention);

}  // namespace attn::engines::native
