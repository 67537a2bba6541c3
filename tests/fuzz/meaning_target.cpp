// Fuzzes the front end with well-formed specs: it gives diagnostics, or an attention that verifies
// and round-trips as text, before and after simplification. The same holds for its derivative.
#include "compiler/ast/parse.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/sema/analyze.h"
#include "tests/fuzz/spec_generator.h"
#include "tests/fuzz/target.h"

namespace attn::fuzz {
namespace {

void try_attention(const ir::Attention& attention) {
  require(ir::verify(attention).ok());
  const std::string text = ir::to_text(attention);
  const Result<ir::Attention> again = ir::parse(text);
  require(again.ok() && ir::to_text(*again) == text);
}

// Checks the derivative as the score of the attention.
void try_derivative(const ir::Attention& attention) {
  gradient::Derivatives derivatives = gradient::differentiate(attention);
  derivatives.attention.score = derivatives.score;
  try_attention(derivatives.attention);
}

void try_meaning(const std::string& text) {
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  const auto spec = ast::parse(source, sink);
  require(spec.has_value() != sink.has_errors());
  if (!spec) return;
  const auto attention = sema::analyze(*spec, {}, sink);
  require(attention.has_value() != sink.has_errors());
  require(diag::to_text(sink).empty() == sink.sorted().empty());
  if (!attention) return;
  try_attention(*attention);
  const ir::Attention simplified = rewrite::simplify(*attention);
  try_attention(simplified);
  try_derivative(simplified);
}

}  // namespace

const std::vector<std::string>& words() {
  static const std::vector<std::string> all = {std::string(1, '\0'), "\x01", "\xFF",
                                               std::string(16, '\x06')};
  return all;
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  std::uint32_t state = 1;
  for (int seed = 0; seed < 64; ++seed) {
    std::string decisions;
    for (int i = 0; i < 160; ++i) {
      state = state * 1664525 + 1013904223;
      decisions += static_cast<char>(state >> 24);
    }
    all.push_back(decisions);
  }
  return all;
}

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attn::fuzz::try_meaning(attn::fuzz::spec_of({data, size}));
  return 0;
}
