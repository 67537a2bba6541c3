// Specs through the whole front end, for tests.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "compiler/ast/parse.h"
#include "compiler/sema/analyze.h"

namespace attn::sema {

struct Analyzed {
  std::optional<ir::Attention> attention;
  std::string text;                // of the diagnostics
  std::vector<std::string> codes;  // "E0201", in text order
};

inline Analyzed analyze_text(const std::string& text, const Bindings& bindings = {}) {
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  Analyzed result;
  if (const auto spec = ast::parse(source, sink)) {
    result.attention = analyze(*spec, bindings, sink);
  }
  result.text = diag::to_text(sink);
  for (const diag::Diagnostic& d : sink.sorted()) result.codes.emplace_back(diag::id_of(d.code));
  if (result.attention) {
    const Status status = ir::verify(*result.attention);
    EXPECT_TRUE(status.ok()) << text << (status.ok() ? "" : status.error().message);
  }
  return result;
}

inline Analyzed analyze_body(const std::string& clauses, const Bindings& bindings = {}) {
  return analyze_text("attention f {\n" + clauses + "\n}", bindings);
}

inline ir::Attention good(const std::string& clauses, const Bindings& bindings = {}) {
  Analyzed analyzed = analyze_body(clauses, bindings);
  EXPECT_TRUE(analyzed.attention) << analyzed.text;
  return analyzed.attention ? *std::move(analyzed.attention) : ir::Attention();
}

using Codes = std::vector<std::string>;

constexpr const char* kDeclarations =
    "dims B = 2, Hq = 8, Hkv = 4, Sq = 128, D = 64; tensor slopes: f32[Hq]; tensor doc: i32[B, "
    "Skv];"
    " tensor flag: bool[Skv]; param c: f32; param n: i32; ";

// The score as the IR has it, or the codes of what is wrong. The declarations are not all used;
// that warning is left out.
inline std::string text_of(const std::string& keyword, const std::string& expression) {
  const Analyzed analyzed = analyze_body(kDeclarations + keyword + " " + expression + ";");
  if (analyzed.attention) {
    const ir::Attention& attention = *analyzed.attention;
    return to_source(attention, keyword == "mask"    ? attention.masks.at(0)
                                : keyword == "scale" ? attention.scale
                                                     : attention.score);
  }
  std::string codes;
  for (const std::string& code : analyzed.codes) {
    if (code[0] == 'E') codes += (codes.empty() ? "" : " ") + code;
  }
  return codes;
}
inline std::string score(const std::string& expression) { return text_of("score", expression); }
inline std::string mask(const std::string& expression) { return text_of("mask", expression); }

}  // namespace attn::sema
