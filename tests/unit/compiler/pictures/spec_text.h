#pragma once

#include <string>

#include "compiler/driver/driver.h"
#include "runtime/base/check.h"

namespace attn::pictures {

inline ir::Attention attention_of(const std::string& text) {
  const support::Source source("test.attn", text);
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), text + '\n' + diag::to_text(sink));
  return *attention;
}

}  // namespace attn::pictures
