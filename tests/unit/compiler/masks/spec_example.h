// Attentions written as specs, for tests of passes on whole masks.
#pragma once

#include <string>

#include "compiler/driver/driver.h"
#include "runtime/base/check.h"

namespace attn::masks::testing {

// The attention of a whole spec, which must have no errors.
inline ir::Attention of_spec(const std::string& text) {
  const support::Source source("example", text);
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), text + '\n' + diag::to_text(sink));
  return *attention;
}

// An attention with B 2, Hq 4, Hkv 2, D 8 and these clauses.
inline ir::Attention of_clauses(std::int64_t rows, std::int64_t columns,
                                const std::string& clauses) {
  return of_spec("attention example { dims B = 2, Hq = 4, Hkv = 2, Sq = " + std::to_string(rows) +
                 ", Skv = " + std::to_string(columns) + ", D = 8; " + clauses +
                 " outputs o, lse; }");
}

// The masks of an attention in the syntax of the language, joined by " && "; "true" without any.
inline std::string masks_of(const ir::Attention& attention) {
  std::string text;
  for (const ir::ExprId mask : attention.masks) {
    text += (text.empty() ? "" : " && ") + ir::to_source(attention, mask);
  }
  return text.empty() ? "true" : text;
}

}  // namespace attn::masks::testing
