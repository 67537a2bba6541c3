// The words of the language, and what each means: for hover and completion.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace attn::tools::lsp {

enum class WordKind : std::uint8_t {
  clause,  // also of a file: fn, import, attention
  dimension,
  value,  // of expressions: score, q_idx, inf
  function,
  type,
  layout,
  output,
  choice,  // of `align`, `normalize` and `shard`
  side,    // of `lengths`
  fact,    // about a tensor
  tensor,  // q, k, v, o and the lengths
};

struct Word {
  WordKind kind;
  std::string_view name;
  std::string_view form;  // how it is written: "where(c, a, b)"
  std::string_view text;
};

std::span<const Word> all_words();
const Word* word_named(WordKind kind, std::string_view name);  // or nullptr

}  // namespace attn::tools::lsp
