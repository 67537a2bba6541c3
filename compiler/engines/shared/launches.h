// Splits parts of an attention's scores into attentions over views of q, k, v and o, without
// copies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/engines/shared/partition.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::engines {

// How class c of `classes` of a view maps to a kernel's batches and heads: batch b * classes + c,
// head c * H + h or head h * classes + c.
enum class Fold : std::uint8_t { none, batch, heads, inner_heads };

struct Launch {
  View view;
  Fold fold = Fold::none;
  ir::Attention attention;  // B, Hq and Hkv include the classes; layouts are strided
  std::map<std::string, std::int64_t, std::less<>> offsets;  // elements; of "q", "k", "v" and "o"
};

// Classes become additional batches or heads if the strides of all four tensors allow it, else
// separate launches. Errors: unsupported for paged and thd layouts, and for more than kMostLaunches
// launches.
inline constexpr std::int64_t kMostLaunches = 16;
Result<std::vector<Launch>> launches(const ir::Attention& whole, const std::vector<Part>& parts);

}  // namespace attn::engines
