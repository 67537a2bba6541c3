// Sums along keys against loops, and their gradients against central differences.
#include "compiler/reference/sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/compiler/masks/spec_example.h"
#include "tests/unit/compiler/reference/problem.h"

namespace attn::reference::sums_tests {
namespace {

using ir::Dim;

constexpr const char* kFox =
    "learn forget: f32[B, Skv, Hq]; let c = cumsum(-softplus(-forget[b, kv_idx, h]));"
    "score score + c[q_idx] - c[kv_idx]; mask q_idx >= kv_idx;";

// A tensor that scores read too, heads that share elements, and two sums.
constexpr const char* kShared =
    "learn gate: f32[Hkv, Skv]; param p: f32; let c = cumsum(p * tanh(gate[h // 2, kv_idx]));"
    "let n = cumsum(where(kv_idx % 3 == 0, sqrt(abs(gate[0, kv_idx]) + 1), 0) / 8);"
    "score score + c[kv_idx] * n[min(q_idx + 1, Skv - 1)] + gate[h % 2, kv_idx];"
    "mask q_idx + 2 >= kv_idx; grad gate, q, lse;";

struct Problem {
  ir::Attention attention;
  Inputs inputs;
};

Problem problem_of(const char* clauses, std::int64_t rows = 5, std::int64_t columns = 6) {
  Problem problem{masks::testing::of_clauses(rows, columns, clauses), {}};
  problem.inputs = testing::random_inputs(problem.attention);
  unsigned seed = 20;
  for (const ir::CapturedTensor& tensor : problem.attention.tensors) {
    std::vector<std::int64_t> dims;
    for (const ir::ExprId extent : tensor.extents)
      dims.push_back(*ir::fold_integer(problem.attention.dag, extent));
    problem.inputs.tensors[tensor.name] = testing::random_tensor(dims, seed++);
  }
  for (const ir::Param& param : problem.attention.params) problem.inputs.params[param.name] = 0.75;
  return problem;
}

TEST(Sums, AreThoseOfEachRow) {
  const Problem problem = problem_of(kFox);
  const auto given = with_sums(problem.attention, problem.inputs, {.unrounded = true});
  ASSERT_TRUE(given.ok()) << given.error().message;
  const io::HostTensor& sums = given->inputs.tensors.at("c");
  EXPECT_EQ(sums.dims, (std::vector<std::int64_t>{2, 4, 6}));
  const io::HostTensor& forget = problem.inputs.tensors.at("forget");
  for (std::size_t row = 0; row < 8; ++row) {
    double sum = 0;
    for (std::size_t key = 0; key < 6; ++key) {
      sum -= std::log1p(std::exp(-forget.values[(row / 4 * 6 + key) * 4 + row % 4]));
      EXPECT_NEAR(sums.values[row * 6 + key], sum, 1e-12);
    }
  }
}

TEST(Sums, TellApartOnlyWhatTheyDependOn) {
  const Problem problem = problem_of(kShared);
  ASSERT_EQ(problem.attention.sums.size(), 2U);
  EXPECT_EQ(problem.attention.sums[0].tensor.extents.size(), 2U);
  EXPECT_EQ(problem.attention.sums[1].tensor.extents.size(), 1U);
}

io::HostTensor random_of(const ir::Attention& attention, bool rows, unsigned seed) {
  const ir::Dims& d = attention.dims;
  std::vector<std::int64_t> dims = {d[Dim::B], d[Dim::Hq], d[Dim::Sq]};
  if (!rows) dims.push_back(d[Dim::Dv]);
  return testing::random_tensor(dims, seed);
}

double loss(const Problem& problem) {
  const auto outputs = evaluate(problem.attention, problem.inputs, {.unrounded = true});
  EXPECT_TRUE(outputs.ok()) << outputs.error().message;
  const io::HostTensor d_o = random_of(problem.attention, false, 9);
  const io::HostTensor d_lse = random_of(problem.attention, true, 10);
  double sum = 0;
  for (std::size_t i = 0; i < d_o.values.size(); ++i) sum += outputs->o.values[i] * d_o.values[i];
  for (std::size_t i = 0; i < d_lse.values.size() && problem.attention.reads_d_lse; ++i)
    sum += outputs->lse.values[i] * d_lse.values[i];
  return sum;
}

Gradients gradients_of(const Problem& problem, const std::vector<std::string>& names, bool sizes) {
  const io::HostTensor d_lse = random_of(problem.attention, true, 10);
  Options options{.unrounded = true, .sizes = sizes};
  if (problem.attention.reads_d_lse) options.d_lse = &d_lse;
  auto result = gradients(problem.attention, problem.inputs, random_of(problem.attention, false, 9),
                          names, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : Gradients{};
}

void expect_differences(Problem problem, const std::vector<std::string>& names) {
  constexpr double kStep = 1e-5;
  const Gradients result = gradients_of(problem, names, true);
  ASSERT_EQ(result.of.size(), names.size());
  ASSERT_EQ(result.sizes.size(), names.size());
  for (const auto& [name, tensor] : result.of) {
    std::vector<double>& values = problem.inputs.tensors.at(name).values;
    for (std::size_t i = 0; i < values.size(); i += name == "q" ? 7 : 1) {
      const double middle = values[i];
      values[i] = middle + kStep;
      const double up = loss(problem);
      values[i] = middle - kStep;
      EXPECT_NEAR(tensor.values[i], (up - loss(problem)) / (2 * kStep), 2e-8) << name << " " << i;
      EXPECT_TRUE(tensor.values[i] == 0 || result.sizes.at(name).values[i] > 0) << name;
      values[i] = middle;
    }
  }
}

TEST(Sums, HaveTheGradientsOfWhatTheySum) { expect_differences(problem_of(kFox), {"q", "forget"}); }

TEST(Sums, ShareTensorsWithScoresAndWithEachOther) {
  expect_differences(problem_of(kShared), {"gate", "q"});
}

// Keys of another number and with other heads, queries of one branch, a table that all read, and a
// sum along keys and a prologue of some.
TEST(Branches, HaveGradientsOfWhatTheyReadAndOfWhatCombines) {
  expect_differences(
      problem_of(
          "learn k2: bf16[B, Hq, Skv // 2, D]; learn v2: bf16[B, Hq, Skv // 2, D];"
          "learn q2: bf16[B, Hq, Sq, D]; learn table: f32[Hq, 4]; learn gates: f32[Hq, Sq, 2];"
          "learn forget: f32[Skv]; let c = cumsum(forget[min(kv_idx, 2)]);"
          "score score + table[h, kv_idx % 4];"
          "branch short: k = k2, v = v2; mask kv_idx <= q_idx;"
          "branch turned: q = q2; prologue q: x[(d_idx + 1) % D]; score score * c[kv_idx];"
          "branch own; mask kv_idx != 1; weight exp(score) / sum(exp(score) + 0.25);"
          "combine gates[h, q_idx, 0] * own * tanh(short) + gates[h, q_idx, 1] * turned;"
          "grad q, k, v, k2, v2, q2, table, gates, forget;"),
      {"q", "k", "v", "k2", "v2", "q2", "table", "gates", "forget"});
}

// Norms and rotations of rows, which read sums of sums, elements elsewhere and learned tensors that
// scores and sums along keys read, too.
TEST(Prologues, HaveGradientsOfRowsAndOfWhatTheyRead) {
  expect_differences(
      problem_of("learn weight: f32[D]; learn both: f32[Skv];"
                 "let c = cumsum(both[kv_idx]);"
                 "fn mean() = sum(x[d_idx]) / D;"
                 "prologue q: (x[d_idx] - mean()) * rsqrt(sum((x[d_idx] - mean()) ** 2) + 0.1) * "
                 "weight[d_idx];"
                 "prologue q: x[d_idx] + x[(d_idx + 3) % D] * both[min(q_idx, Skv - 1)];"
                 "prologue k: x[d_idx] * weight[d_idx // 2] / max(sqrt(sum(x[d_idx] ** 2)), 0.5);"
                 "score score + both[kv_idx] * c[kv_idx]; grad q, k, v, weight, both, lse;"),
      {"q", "k", "v", "weight", "both"});
}

TEST(Prologues, ThatOnlyLearnedTensorsGoThrough) {
  expect_differences(problem_of("learn gain: f32[Hkv]; prologue k: tanh(x[d_idx]) * gain[h];"
                                "grad gain;"),
                     {"gain"});
}

TEST(Prologues, MakeWhatTheySay) {
  const Problem problem = problem_of("prologue q: x[D - 1 - d_idx] + sum(x[d_idx]) * h;");
  Inputs turned = problem.inputs;
  std::vector<double>& q = turned.tensors.at("q").values;
  for (std::size_t row = 0; row < q.size() / 8; ++row) {
    double* const x = q.data() + row * 8;
    const double sum = std::accumulate(x, x + 8, 0.0);
    std::reverse(x, x + 8);
    for (std::size_t d = 0; d < 8; ++d) x[d] += sum * static_cast<double>(row / 5 % 4);
  }
  ir::Attention plain = problem.attention;
  plain.prologue_q.reset();
  const Options options{.unrounded = true};
  const auto made = evaluate(problem.attention, problem.inputs, options);
  const auto expected = evaluate(plain, turned, options);
  ASSERT_TRUE(made.ok() && expected.ok());
  for (std::size_t i = 0; i < expected->o.values.size(); ++i)
    EXPECT_NEAR(made->o.values[i], expected->o.values[i], 1e-12);
}

// What lengths hide may be anything: it is behind what is read.
TEST(Sums, AreNotReachedByWhatIsHidden) {
  Problem problem = problem_of((std::string("lengths q, kv;") + kFox).c_str(), 6, 6);
  problem.inputs.tensors["lengths_q"] = problem.inputs.tensors["lengths_kv"] =
      testing::tensor({2}, {6, 4});
  io::HostTensor& forget = problem.inputs.tensors.at("forget");
  for (std::size_t i = (6 + 4) * 4; i < forget.values.size(); ++i) forget.values[i] = std::nan("");
  const Gradients result = gradients_of(problem, {"q", "forget"}, true);
  for (const double value : result.outputs.o.values) EXPECT_FALSE(std::isnan(value));
  const std::vector<double>& of_forget = result.of.at("forget").values;
  for (std::size_t i = 0; i < of_forget.size(); ++i)
    EXPECT_TRUE(i < (6 + 4) * 4 ? std::isfinite(of_forget[i]) : of_forget[i] == 0) << i;
}

TEST(Sums, NeedAValueOfEachKey) {
  Problem problem = problem_of(
      "tensor at: i32[Skv]; tensor gate: f32[Skv]; let c = cumsum(gate[at[kv_idx]]);"
      "score score + c[kv_idx];");
  problem.inputs.tensors["at"] = testing::tensor({6}, {0, 1, 6, 0, 0, 0});
  const auto outputs = evaluate(problem.attention, problem.inputs, {});
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().code, ErrorCode::binding);
  EXPECT_THAT(outputs.error().message, ::testing::HasSubstr("index 0 is 6, outside 0..5"));
}

}  // namespace
}  // namespace attn::reference::sums_tests
