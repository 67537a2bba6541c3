// Small attentions with random inputs, from IR text.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "compiler/reference/evaluate.h"

namespace attn::reference::testing {

// An attention with these dims ("B=1 Hq=2 ..."), declarations, nodes, score and masks. Lines of
// `body` are IR text after the align line; scale is 0.5.
inline ir::Attention attention(const std::string& dims, const std::string& body) {
  const std::string text = "attention test {\n  dims " + dims +
                           "\n  dtype bf16\n  layout k=bshd o=bshd q=bshd v=bshd\n"
                           "  align top_left\n" +
                           body + "}\n";
  Result<ir::Attention> parsed = ir::parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  if (!parsed.ok()) return {};
  const Status valid = ir::verify(*parsed);
  EXPECT_TRUE(valid.ok()) << valid.error().message;
  return *parsed;
}

inline io::HostTensor tensor(std::vector<std::int64_t> dims, std::vector<double> values) {
  return {DType::f64, std::move(dims), std::move(values)};
}

inline io::HostTensor random_tensor(std::vector<std::int64_t> dims, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-2, 2);
  io::HostTensor result = {DType::f64, std::move(dims), {}};
  for (std::int64_t i = io::element_count(result.dims); i > 0; --i) {
    result.values.push_back(value(random));
  }
  return result;
}

inline Inputs random_inputs(const ir::Attention& attention) {
  using ir::Dim;
  const ir::Dims& d = attention.dims;
  Inputs inputs;
  inputs.tensors["q"] = random_tensor({d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dqk]}, 1);
  inputs.tensors["k"] = random_tensor({d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dqk]}, 2);
  inputs.tensors["v"] = random_tensor({d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dv]}, 3);
  return inputs;
}

}  // namespace attn::reference::testing
