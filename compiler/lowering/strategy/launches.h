// Parts of an attention's scores as attentions of their own over views of q, k, v and o: no copies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/strategy/partition.h"
#include "runtime/base/status.h"

namespace attn::lowering {

// Which of a kernel's batches and heads belong to class c of a view, of `classes`: batch
// b * classes + c, head c * H + h or head h * classes + c.
enum class Fold : std::uint8_t { none, batch, heads, inner_heads };

struct Launch {
  passes::View view;
  Fold fold = Fold::none;
  ir::Attention attention;  // B, Hq and Hkv with the classes in them; layouts are strided
  std::map<std::string, std::int64_t, std::less<>> offsets;  // elements; of "q", "k", "v" and "o"
};

// A class is a further batch or head where the strides of all four tensors allow it, and a launch
// of its own where not. Errors: unsupported for paged and thd layouts, and where there would be
// more than kMostLaunches.
inline constexpr std::int64_t kMostLaunches = 16;
Result<std::vector<Launch>> launches(const ir::Attention& whole,
                                     const std::vector<passes::Part>& parts);

}  // namespace attn::lowering
