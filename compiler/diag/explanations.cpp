#include "compiler/diag/explanations.h"

#include <array>

namespace attn::diag {
namespace {

constexpr std::size_t kCodes = 0
#define ATTN_DIAGNOSTIC(id, name, severity, summary) +1
#include "compiler/diag/diagnostics.def"
#undef ATTN_DIAGNOSTIC
    ;

// A code without an entry in explanations.def stays empty; a test checks for this.
constexpr std::array<Explanation, kCodes> explanations() {
  std::array<Explanation, kCodes> all{};
#define ATTN_EXPLANATION(name, text, wrong, right) \
  all[static_cast<std::size_t>(Code::name)] = {text, wrong, right};
#include "compiler/diag/explanations.def"
#undef ATTN_EXPLANATION
  return all;
}

}  // namespace

const Explanation& explanation_of(Code code) {
  static constexpr std::array<Explanation, kCodes> kAll = explanations();
  return kAll[static_cast<std::size_t>(code)];
}

}  // namespace attn::diag
