#include "compiler/diag/explanations.h"

#include <array>
#include <charconv>

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

std::string expand_example(std::string_view example) {
  std::string out;
  for (;;) {
    const std::size_t open = example.find("[[");
    out += example.substr(0, open);
    if (open == example.npos) return out;
    const std::size_t times = example.find(" x ", open);
    const std::size_t close = example.find("]]", times);
    if (close == example.npos) return out + std::string(example.substr(open));
    std::size_t count = 0;
    std::from_chars(example.data() + open + 2, example.data() + times, count);
    const std::string_view part = example.substr(times + 3, close - times - 3);
    for (; count > 0; --count) out += part;
    example.remove_prefix(close + 2);
  }
}

}  // namespace attn::diag
