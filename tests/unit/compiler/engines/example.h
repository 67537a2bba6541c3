// Small attentions and their lowered graphs for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/engines/cudnn/lower.h"
#include "compiler/ir/attention.h"

namespace attn::engines::testing {

// B 2, Hq 8, Hkv 2, Sq 128, Skv 256, D 64, f16, bshd; no mask, unmodified score.
inline ir::Attention example() {
  ir::Attention attention;
  attention.name = "example";
  attention.dtype = DType::f16;
  const std::int64_t sizes[] = {2, 8, 2, 128, 256, 64, 64};
  for (std::size_t i = 0; i < ir::kDims.size(); ++i) attention.dims.set(ir::kDims[i], sizes[i]);
  for (const char* name : {"q", "k", "v", "o"}) attention.layouts[name] = ir::Layout{};
  attention.scale = attention.dag.real(0.125);
  attention.score = attention.dag.leaf(ir::Op::score_);
  return attention;
}

inline graph::BackendGraph lowered(const ir::Attention& attention) {
  const auto program = lower(attention, {});
  if (!program.ok()) {
    ADD_FAILURE() << program.error().to_text();
    return {};
  }
  return std::get<plan::CudnnStep>(program->steps.at(0)).graph;
}

// The operations in order: "matmul", "reduce max", "mul.f32", "gen_index.f32@2" ...
inline std::vector<std::string> operations(const graph::BackendGraph& graph) {
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes) {
    if (std::holds_alternative<graph::Matmul>(node)) {
      names.emplace_back("matmul");
    } else if (const auto* reduction = std::get_if<graph::Reduction>(&node)) {
      names.push_back("reduce " + std::string(to_string(reduction->op)));
    } else {
      const auto& pointwise = std::get<graph::Pointwise>(node);
      std::string name =
          std::string(to_string(pointwise.mode)) + "." + std::string(to_string(pointwise.compute));
      if (pointwise.axis) name += "@" + std::to_string(*pointwise.axis);
      names.push_back(name);
    }
  }
  return names;
}

// The operations between the scale and the softmax.
inline std::vector<std::string> score_operations(const ir::Attention& attention) {
  std::vector<std::string> names = operations(lowered(attention));
  if (names.size() < 10) return {"too few operations"};
  return {names.begin() + 2, names.end() - 8};
}

}  // namespace attn::engines::testing
