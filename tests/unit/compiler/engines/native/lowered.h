// Programs of the engine `native`, of clauses of a spec.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <stdexcept>
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

// The first map of a tensor, in whichever launch.
inline const plan::TensorMapArgument& map_of(const NativeProgram& made, const std::string& name) {
  for (const plan::Launch& launch : step_of(made).launches) {
    for (const plan::KernelArgument& argument : launch.arguments) {
      const auto* map = std::get_if<plan::TensorMapArgument>(&argument);
      if (map != nullptr && map->tensor.name == name) return *map;
    }
  }
  throw std::runtime_error("no map of " + name);
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

// What a program keeps of its own, and elements of it.
inline std::map<std::string, std::int64_t> stored(const std::string& clauses) {
  std::map<std::string, std::int64_t> all;
  const NativeProgram made = lowered("dims Hq = 8, Hkv = 2, D = 128, " + clauses).value();
  for (const plan::TensorInfo& tensor : made.program.internals) {
    if (tensor.name.starts_with("native.")) all[tensor.name] = tensor.dims[0];
  }
  return all;
}

}  // namespace attn::engines::testing
