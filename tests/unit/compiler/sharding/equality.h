// Compares the programs of all ranks with the reference of the whole attention.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "compiler/reference/defaults.h"
#include "compiler/reference/gradients.h"
#include "compiler/reference/lifelike.h"
#include "compiler/sharding/choose.h"
#include "compiler/sharding/simulator.h"
#include "runtime/io/random.h"

namespace attn::sharding::testing {

inline io::HostTensor normal(std::vector<std::int64_t> dims, std::uint64_t seed) {
  io::HostTensor tensor{DType::f64, std::move(dims), {}};
  tensor.values = io::normal_values(seed, io::element_count(tensor.dims));
  return tensor;
}

inline io::HostTensor captured(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                               std::uint64_t seed) {
  if (tensor.fallback && !tensor.learned) {
    const auto values = reference::default_values(attention, tensor);
    if (values.ok()) return *values;
  }
  std::vector<std::int64_t> dims;
  for (const ir::ExprId extent : tensor.extents)
    dims.push_back(*ir::fold_integer(attention.dag, extent, attention.dims));
  if (is_float(tensor.dtype)) return normal(dims, seed);
  return {tensor.dtype, dims, reference::lifelike(attention, tensor, dims, seed)};
}

inline reference::Inputs inputs_of(const ir::Attention& attention, std::uint64_t seed) {
  using ir::Dim;
  const ir::Dims& d = attention.dims;
  reference::Inputs inputs;
  inputs.tensors["q"] = normal({d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dqk]}, seed);
  inputs.tensors["k"] = normal({d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dqk]}, seed + 1);
  inputs.tensors["v"] = normal({d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dv]}, seed + 2);
  for (const ir::CapturedTensor& tensor : attention.tensors)
    inputs.tensors[tensor.name] = captured(attention, tensor, ++seed + 2);
  for (const ir::Param& param : attention.params)
    inputs.params[param.name] = param.dtype == DType::i32 ? 3 : 0.7;
  if (attention.is_random()) inputs.params["seed"] = 11, inputs.params["offset"] = 5;
  return inputs;
}

// Relative to the largest element, or to 1 if that is larger.
inline double difference(const io::HostTensor& x, const io::HostTensor& y) {
  if (x.dims != y.dims) return HUGE_VAL;
  double largest = 1, most = 0;
  for (const double value : y.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const bool same =
        x.values[i] == y.values[i] || (std::isnan(x.values[i]) && std::isnan(y.values[i]));
    if (!same) most = std::max(most, std::abs(x.values[i] - y.values[i]) / largest);
    if (!same && std::isnan(x.values[i] - y.values[i])) return HUGE_VAL;
  }
  return most;
}

inline constexpr double kEqual = 1e-12;

// What the whole attention computes.
struct Expected {
  reference::Inputs inputs;
  io::HostTensor d_o, d_lse;
  reference::Gradients whole;
};

inline std::vector<std::string> names_of_gradients(const ir::Attention& attention) {
  std::vector<std::string> names = {"q", "k", "v"};
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    if (tensor.learned) names.push_back(tensor.name);
  }
  return names;
}

// Asks for all outputs that the attention can have.
inline void want_all(ir::Attention& attention) {
  if (!attention.is_softmax()) {
    attention.wants_lse = attention.quotient.has_value();
    return;
  }
  attention.wants_lse = attention.wants_max = attention.wants_sum_exp = true;
  attention.wants_max_with_sink = attention.wants_sum_exp_with_sink =
      attention.wants_lse_without_sink = attention.sink.has_value();
}

inline const io::HostTensor* d_lse_of(const ir::Attention& attention, const io::HostTensor& d_lse) {
  return attention.reads_d_lse ? &d_lse : nullptr;
}

inline Result<Expected> expected(const ir::Attention& attention, std::uint64_t seed) {
  using ir::Dim;
  const ir::Dims& d = attention.dims;
  Expected expected{inputs_of(attention, seed),
                    normal({d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dv]}, seed + 99),
                    normal({d[Dim::B], d[Dim::Hq], d[Dim::Sq]}, seed + 100),
                    {}};
  ATTN_ASSIGN(expected.whole,
              reference::gradients(
                  attention, expected.inputs, expected.d_o, names_of_gradients(attention),
                  {.unrounded = true, .threads = 1, .d_lse = d_lse_of(attention, expected.d_lse)}));
  return expected;
}

inline void compare(const ir::Attention& attention, const Sharding& sharding, const WorkMap& map,
                    const Expected& expected) {
  SCOPED_TRACE(sharding.to_text());
  const auto programs = rank_programs(sharding, map, attention);
  const auto simulated = simulate(attention, programs, expected.inputs, &expected.d_o,
                                  {.d_lse = d_lse_of(attention, expected.d_lse)});
  ASSERT_TRUE(simulated.ok()) << simulated.error().to_text();
  const reference::Outputs &made = simulated->outputs, &whole = expected.whole.outputs;
  const auto expect_equal = [](bool wanted, const io::HostTensor& x, const io::HostTensor& y,
                               const char* name) {
    if (wanted) {
      EXPECT_LE(difference(x, y), kEqual) << name;
    }
  };
  expect_equal(true, made.o, whole.o, "o");
  expect_equal(attention.wants_lse, made.lse, whole.lse, "lse");
  expect_equal(attention.wants_max, made.max, whole.max, "max");
  expect_equal(attention.wants_sum_exp, made.sum_exp, whole.sum_exp, "sum_exp");
  expect_equal(attention.wants_max_with_sink, made.max_with_sink, whole.max_with_sink,
               "max_with_sink");
  expect_equal(attention.wants_sum_exp_with_sink, made.sum_exp_with_sink, whole.sum_exp_with_sink,
               "sum_exp_with_sink");
  expect_equal(attention.wants_lse_without_sink, made.lse_without_sink, whole.lse_without_sink,
               "lse_without_sink");
  for (const std::string& name : names_of_gradients(attention)) {
    const io::HostTensor& sum = expected.whole.of.find(name)->second;
    const auto found = simulated->gradients.find(name);
    const io::HostTensor none{DType::f64, sum.dims, std::vector<double>(sum.values.size())};
    const io::HostTensor& given = found == simulated->gradients.end() ? none : found->second;
    EXPECT_LE(difference(given, sum), kEqual) << "the gradient of " << name;
  }
}

}  // namespace attn::sharding::testing
