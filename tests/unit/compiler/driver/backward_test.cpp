// What the backward by one fused kernel refuses, before cuDNN is asked or by cuDNN.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/driver/memory.h"
#include "compiler/driver/support.h"
#include "runtime/plan/memory.h"
#include "runtime/targets/targets.h"

namespace attn::driver {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSizes = "B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 192, D = 64";

struct Read {
  support::Source source;
  ir::Attention attention;

  Read(const char* dims, const char* clauses)
      : source("x.attn", fmt::format("attention x {{ dims {}; {} }}", dims, clauses)) {
    diag::Sink sink(source);
    const auto read = front_end(source, {}, sink);
    EXPECT_TRUE(read) << diag::to_text(sink);
    if (read) attention = *read;
  }
};

struct Refused {
  const char* name;
  const char* dims;
  const char* clauses;
  const char* words;
  ErrorCode code = ErrorCode::unsupported;
};

void PrintTo(const Refused& refused, std::ostream* stream) { *stream << refused.name; }

class RefusedByRules : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedByRules, InWords) {
  const Read spec(GetParam().dims, GetParam().clauses);
  const auto program = lower(spec.attention, "composite", plan::Direction::backward);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, GetParam().code);
  EXPECT_THAT(program.error().to_text(), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Backward, RefusedByRules,
    ::testing::Values(Refused{"GradientOfPages", kSizes, "layout paged(page = 16); lengths kv;",
                              "paged tensors have no gradient"},
                      Refused{"Pages", kSizes, "layout paged(page = 16); lengths kv; grad q;",
                              "cuDNN's backward does not support pages, and `k` is paged"},
                      Refused{"BoundStrides", kSizes, "layout thd(strides = bound);",
                              "the strides of `k` are bound, and no backward takes these"},
                      Refused{"ElementsThatShareAPlace", kSizes,
                              "layout q: bshd, k: strides(D, D, D, 1), v: bshd, o: bshd;",
                              "elements of `k` overlap in memory, and so would those of dk"},
                      Refused{"AnOpenDimension", "B = 2, Hq = 4, Sq, D = 64", "",
                              "--bind Sq=", ErrorCode::invalid_argument}),
    [](const auto& test) { return std::string(test.param.name); });

plan::Program lowered(const char* clauses) {
  const Read spec(kSizes, clauses);
  auto program = lower(spec.attention, "composite", plan::Direction::backward);
  EXPECT_TRUE(program.ok()) << program.error().to_text();
  return program.ok() ? std::move(program).value() : plan::Program();
}

TEST(Backward, AsksForNoOutputsOfTheForward) {
  EXPECT_FALSE(lowered("outputs lse;").steps.empty());
}

TEST(Backward, LeavesNamesToTheSpec) {
  const plan::Program program =
      lowered("tensor delta: f32[Hq]; param sum: f32; score score + delta[h] * sum;");
  EXPECT_FALSE(program.steps.empty());
}

TEST(Backward, OfLearnedTensorsAloneHasNoFusedKernel) {
  const plan::Program program = lowered("learn sinks: f32[Hq]; sink sinks[h]; grad sinks;");
  EXPECT_TRUE(plan::steps_of<plan::CudnnStep>(program).empty());
}

constexpr const char* kSlopes =
    "learn slope: f32[Hq]; score score + slope[h] * (kv_idx - q_idx); grad q, k, v, slope;";

plan::Program slopes(std::int64_t rows, const char* lowering = "composite",
                     target::Rewrites made = {}) {
  const std::string sizes = fmt::format("B = 4, Hq = 32, Sq = {}, Skv = Sq, D = 128", rows);
  const Read spec(sizes.c_str(), kSlopes);
  auto program = lower(spec.attention, lowering, plan::Direction::backward, made);
  EXPECT_TRUE(program.ok()) << program.error().to_text();
  return program.ok() ? std::move(program).value() : plan::Program();
}

target::Rewrites tiles_of(std::int64_t score_bytes) {
  target::Rewrites made;
  made.score_bytes = score_bytes;
  return made;
}

std::int64_t most_turns(const plan::Program& program) {
  std::int64_t most = 0;
  for (const plan::Step& step : program.steps) most = std::max(most, plan::turns_of(step));
  return most;
}

// All scores would take 34 GB, 137 GB and 550 GB; packed copies grow with the rows.
TEST(Backward, OfATensorThatScoresReadTakesBoundedMemory) {
  for (const std::int64_t rows : {4096, 8192, 16384}) {
    const double copies = 4.0 * 4 * 32 * static_cast<double>(rows) * 128 * 2;
    const plan::Program program = slopes(rows);
    const std::int64_t bytes = plan::memory_of(program).between;
    EXPECT_LT(static_cast<double>(bytes), 0x1p30 + 1.6 * copies) << rows;
    EXPECT_GE(most_turns(program), rows / 64);
    EXPECT_LE(program.steps.size(), 13U);
  }
  EXPECT_LT(plan::memory_of(slopes(8192, "unfused")).between, 5'000'000'000);  // all take 172 GB
}

// It has no expression, as derived tensors have.
TEST(Backward, SaysThatSumsOfAttncsKernelsTakeMemory) {
  const Read spec("B = 4, Hq = 32, Sq = 16384, D = 128", "");
  const auto program = lower(spec.attention, "native", plan::Direction::backward);
  ASSERT_TRUE(program.ok()) << program.error().to_text();
  diag::Sink sink(spec.source);
  warn_of_memory(spec.attention, *program, plan::memory_of(*program), sink);
  ASSERT_EQ(sink.sorted().size(), 1U);
  const diag::Diagnostic warning = sink.sorted().front();
  EXPECT_THAT(warning.message, HasSubstr("most of it is `native.sums`, 1.1 GB"));
  EXPECT_THAT(warning.help, HasSubstr("split them over several calls"));
}

TEST(Backward, HasNoTilesWhereAllScoresFit) {
  EXPECT_EQ(most_turns(slopes(704)), 1);  // 1.015e9 bytes
  EXPECT_GT(most_turns(slopes(768)), 1);
  EXPECT_GT(most_turns(slopes(128, "composite", tiles_of(1'000'000))), 1);
}

// An index as a factor is a real one.
TEST(Backward, MultipliesRealsAlone) {
  const plan::Program program = lowered("score score * kv_idx;");
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    for (const graph::Node& node : step->graph.nodes) {
      const auto* op = std::get_if<graph::Pointwise>(&node);
      if (op == nullptr || op->mode != graph::PointwiseMode::mul || !op->b) continue;
      if (step->graph.find(op->x)->dtype == DType::i32) continue;  // of indices alone
      const graph::Tensor& factor = *step->graph.find(*op->b);
      EXPECT_FALSE(factor.storage == graph::Storage::virtual_value && factor.dtype == DType::i32);
    }
  }
}

struct Asked {
  const char* name;
  const char* target;
  const char* dims;
  const char* clauses;
  const char* words;  // empty: it is served
};

void PrintTo(const Asked& asked, std::ostream* stream) { *stream << asked.name; }

class AskedOfHeuristics : public ::testing::TestWithParam<Asked> {};

TEST_P(AskedOfHeuristics, GivesAReason) {
  const Read spec(GetParam().dims, GetParam().clauses);
  CompileOptions options;
  options.target = targets::find_target(GetParam().target).value();
  options.worker.command = {ATTN_WORKER_PROGRAM, "worker"};
  options.direction = plan::Direction::backward;
  options.lowering = "composite";
  const Verdict verdict = judge(spec.attention, spec.source, {}, options, Tier::heuristics);
  if (*GetParam().words == '\0') {
    EXPECT_EQ(verdict.outcome, Verdict::Outcome::served);
    EXPECT_EQ(verdict.lowering, "composite");
    return;
  }
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::refused);
  ASSERT_TRUE(verdict.error);
  EXPECT_THAT(reason_of(*verdict.error), HasSubstr(GetParam().words));
}

constexpr const char* kWide = "B = 1, Hq = 2, Sq = 128, D = 256";
constexpr const char* kOneVector = "tensor a: f32[Sq]; score score + a[q_idx];";
constexpr const char* kThreeVectors =
    "tensor a: f32[Sq]; tensor c: f32[Sq]; tensor d: f32[Sq];"
    "score score + a[q_idx]; score score * c[q_idx]; score tanh(score + d[q_idx]);";

INSTANTIATE_TEST_SUITE_P(
    Backward, AskedOfHeuristics,
    ::testing::Values(
        Asked{"HeadDimension256", "h200", kWide, "", ""},
        Asked{"HeadDimension512", "h200", "B = 1, Hq = 2, Sq = 128, D = 512", "", "at most 256"},
        Asked{"HeadDimension256OnAmpere", "a100", kWide, "", "at most 128"},
        Asked{"AVectorOverRows", "h200", kSizes, kOneVector, ""},
        Asked{"ThreeVectorsOverRows", "h200", kSizes, kThreeVectors, "4 times"},
        Asked{"AVectorOverRowsOnAmpere", "a100", kSizes, kOneVector, "2 times"},
        Asked{"AVectorOverRowsOnConsumerBlackwell", "rtx5090", kSizes, kOneVector, "2 times"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace attn::driver
