// Creates a spec from text, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "compiler/driver/driver.h"
#include "tools/spec.h"

namespace attn::tools {

inline Spec spec_of(const std::string& text, const sema::Bindings& bindings = {}) {
  SpecOutcome outcome = analyze_spec(std::make_shared<const support::Source>("test.attn", text),
                                     bindings, Format::text);
  if (!outcome.spec) {
    ADD_FAILURE() << "the spec has errors: " << text;
    std::abort();
  }
  return std::move(*outcome.spec);
}

}  // namespace attn::tools
