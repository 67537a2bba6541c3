// Where in a spec the cursor stands, by the tokens before it: the text there is rarely whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ast/syntax.h"

namespace attn::tools::lsp {

enum class Expected : std::uint8_t {
  nothing,  // a new name, or a comment
  path,     // of an import
  item,     // at the top of a file
  clause,
  dimension,  // that is given a size
  constant,   // an expression of constants
  element,    // of a default: an expression of the element's indexes
  expression,
  type,
  layout,
  layout_kind,
  choice,       // of `align`, `normalize`, `shard` and `quantize`
  cache_scale,  // what `quantize kv(..)` gives scales
  cache_type,   // of keys or values, in `dtype`
  output,
  side,
  fact,
  gradient,
  input,   // `q`, `k` or `v` of a branch
  tensor,  // that is read in its place
};

struct Place {
  Expected expected = Expected::nothing;
  std::string keyword;           // of the clause, "" at its beginning
  std::uint32_t word_begin = 0;  // of what is replaced
  bool in_attention = false;     // not in a function above it
  // Parameters and values of the function, variables of reductions, indexes of an element.
  std::vector<std::string> locals;
};

Place place_at(std::string_view text, const ast::Lexed& lexed, std::uint32_t offset);

}  // namespace attn::tools::lsp
