// What to write instead of an index that is out of range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::check {

// An index of a tensor that falls to `value`, or reaches it, along an axis of `size` elements.
struct OutsideIndex {
  ir::ExprId index = 0;
  std::int64_t value = 0;
  std::int64_t size = 0;
  std::string text;                    // the index, as it is written
  bool can_hide = true;                // whether masks hide what reads it
  bool can_guard = true;               // whether kernels take it if a condition guards it
  std::string_view column = "kv_idx";  // the name of Op::column_
};

struct IndexAdvice {
  std::string help;
  std::vector<std::string> instead{};  // texts of other indexes, one of which is meant
};

IndexAdvice advice_for(const OutsideIndex& outside, const ir::Attention& attention);

}  // namespace attn::check
