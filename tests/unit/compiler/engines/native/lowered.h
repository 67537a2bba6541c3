// Programs of the engine `native`, of clauses of a spec.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "compiler/engines/native/programs.h"
#include "compiler/masks/mask_analysis.h"
#include "tests/support/contexts.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::testing {

inline constexpr const char* kSizes = "dims B = 2, Hq = 8, Hkv = 2, Sq = 300, Skv = 400, D = 128; ";

inline ir::Attention of(const std::string& clauses) {
  return masks::testing::of_spec("attention a { " + clauses + " }");
}

inline Result<NativeProgram> lowered(const std::string& clauses, std::size_t refused = 0) {
  const ir::Attention attention = of(clauses);
  const masks::MaskAnalysis mask(attention, nullptr);
  const target::Context context = attn::testing::in(false);
  return NativePrograms(attention, masks::varying(mask.axes(), attention.dims), context)
      .make(refused);
}

inline const plan::KernelStep& step_of(const NativeProgram& made) {
  return std::get<plan::KernelStep>(made.program.steps.back());
}

inline std::string source_of(const std::string& clauses) {
  const Result<NativeProgram> made = lowered(clauses);
  if (!made.ok()) return made.error().to_text();
  return step_of(*made).source;
}

inline std::string refusal(const std::string& clauses) {
  const Result<NativeProgram> made = lowered(clauses);
  if (made.ok()) return "";
  EXPECT_EQ(made.error().code, ErrorCode::unsupported);
  return made.error().message;
}

}  // namespace attn::engines::testing
