#include "tools/lsp/words.h"

#include <algorithm>

namespace attn::tools::lsp {
namespace {

constexpr Word kWords[] = {
#define ATTN_WORD(kind, name, form, text) {WordKind::kind, #name, form, text},
#include "tools/lsp/words.def"
#undef ATTN_WORD
#define ATTN_REAL_FUNCTION(name, id, operands, doc, ...) \
  {WordKind::function, #name, operands == 1 ? #name "(x)" : #name "(x, y)", doc},
#include "compiler/ir/real_functions.def"
#undef ATTN_REAL_FUNCTION
};

}  // namespace

std::span<const Word> all_words() { return kWords; }

const Word* word_named(WordKind kind, std::string_view name) {
  const auto* found = std::ranges::find_if(
      kWords, [&](const Word& word) { return word.kind == kind && word.name == name; });
  return found == std::end(kWords) ? nullptr : found;
}

}  // namespace attn::tools::lsp
