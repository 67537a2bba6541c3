// What is known to kill cuDNN 9.19, to be refused by it or to be computed wrongly in silence, as
// specs that ask for it: each becomes a graph without the pattern, which compiles for an H200, or a
// diagnostic that says why not. docs/cudnn.md has the list.
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "runtime/targets/targets.h"
#include "tests/support/crash_patterns.h"

namespace attn::driver {
namespace {

constexpr const char* kSizes = "B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 192, D = 64";
constexpr const char* kInPages = "B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 256, D = 64";
constexpr const char* kOneRow = "B = 2, Hq = 4, Hkv = 2, Sq = 1, Skv = 192, D = 64";

struct Fact {
  const char* name;
  const char* dims;
  std::string clauses;
  const char* refusal = "";  // its words; empty: a plan
};

void PrintTo(const Fact& fact, std::ostream* stream) { *stream << fact.name; }

// More operations than the 48 that a graph once died of, and than the 50 that a builder has room
// for.
std::string chain(int operations) {
  std::string text;
  for (int i = 0; i < operations; ++i) {
    text += "score score " + std::string(i % 2 == 0 ? "* 1.01" : "+ 0.25") + ";\n";
  }
  return text;
}

// As many as README.md says, and as were compared on an H200 (tests/gpu/deep).
constexpr const char* kDeep320 = "B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 192, D = 320";
constexpr const char* kDeep512 = "B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 192, D = 512";
constexpr const char* kDeep1024 = "B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 192, D = 1024";
constexpr const char* kDeep2000 = "B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 192, D = 2000";

std::vector<Fact> facts() {
  const std::string causal = "mask q_idx >= kv_idx; ";
  const std::string alibi = causal + "score score - 2 ** (-2 * (h + 1)) * (q_idx - kv_idx);";
  const std::string doc = "tensor doc: i32[B, Skv]; ";
  return {
      // The process dies.
      {"BooleanTensorAsMask", kSizes, "tensor m: bool[B, Skv]; mask m[b, kv_idx];"},
      {"BooleanTensorAddedToAnIndex", kSizes, "tensor m: bool[Skv]; mask m[kv_idx] + q_idx > 3;"},
      {"BooleanOfTheScoreAddedToAnIndex", kSizes, "score score + ((score > 0) + kv_idx);",
       "cuDNN cannot convert a boolean to an integer"},
      {"U8TensorAsMask", kSizes, "tensor m: u8[B, Skv]; mask m[b, kv_idx] != 0;"},
      {"I8TensorAsMask", kSizes, "tensor m: i8[B, Skv]; mask m[b, kv_idx] != 0;"},
      {"ConstantFirstInASelect", kSizes, "score where(score > 0, 0.5, score);"},
      {"ParamFirstInASelect", kSizes, "param p: f32; score where(kv_idx > 3, p, score);"},
      {"OnlyConstantsInASelect", kSizes, "score score + where(score > 0, 1.0, 0.0);"},
      {"SixtyOperations", kSizes, chain(60)},
      {"ThreeHundredOperations", kSizes, chain(300)},
      {"OneBatchHeadAndRow", "B = 1, Hq = 1, Sq = 1, Skv = 192, D = 64", "mask q_idx >= kv_idx;"},
      {"StridedRows", kSizes,
       "layout q: strides(32768, 64, 256, 1), k: strides(24576, 12288, 1, 192), v: bshd, o: bshd;"},
      {"RowsOrColumnsBesideLengths", kSizes, "mask kv_idx < 3 || q_idx < 2; lengths kv;"},
      {"RowsBelowATensorBesideLengths", kSizes,
       "tensor t: i32[Sq]; mask kv_idx >= 3 && q_idx < t[q_idx]; lengths q;"},
      // Computed wrongly, in silence.
      {"NotOfIntegers", kSizes, "mask !(kv_idx % 3 == 0);"},
      {"NotOfReals", kSizes, "score where(!(score > 0.5), score, 2 * score);"},
      {"VariesWithTheBatch", kSizes, "tensor t: f32[B]; score score * t[b];"},
      {"VariesWithBatchAndHead", kSizes, "tensor t: f32[B, Hq]; score max(score, t[b, h]);"},
      {"VariesWithTheBatchAtOneRow", kOneRow, "tensor t: f32[B]; score score * t[b];"},
      {"VariesWithBatchAndHeadAtOneRow", kOneRow,
       "tensor t: f32[B, Hq]; score max(score, t[b, h]);"},
      {"AnIndexAtOneRow", kOneRow, "score score + 0.01 * kv_idx;"},
      {"TheOutputsMaxAndSumExp", kSizes, "outputs o, max, sum_exp;"},
      {"OnlyLse", kSizes, "outputs lse;"},
      {"OnlySumExp", kSizes, "outputs sum_exp; layout o: strides(Sq * 1024, 80, 1024, 1);"},
      {"LengthsOfQAtOneRow", kOneRow, "lengths q;"},
      {"MaxBesideASink", kSizes, "tensor s: f32[Hq]; sink s[h]; outputs o, max;",
       "beside a sink, cuDNN's engines output no statistic but lse"},
      {"MaxWithTheSinkInIt", kSizes, "tensor s: f32[Hq]; sink s[h]; outputs o, max_with_sink;",
       "beside a sink, cuDNN's engines output no statistic but lse"},
      {"LseWithoutTheSinkBesideOne", kSizes,
       "tensor s: f32[Hq]; sink s[h]; outputs lse_without_sink;",
       "beside a sink, cuDNN's engines output no statistic but lse"},
      {"ATableOfPagesForKAndForV", kInPages, "layout paged(page = 32, tables = 2); lengths kv;"},
      {"PagesOfTwoSizes", kInPages,
       "layout q: bshd, k: paged(page = 32), v: paged(page = 64), o: bshd; lengths kv;",
       "if the pages of k and v differ in size"},
      // The kernel fails.
      {"ColumnsThatAreNotAdjacent", kSizes,
       "tensor t: f32[Skv, Sq]; score score + t[kv_idx, q_raw];"},
      // Refused.
      {"And", kSizes, "mask kv_idx % 3 == 0 && q_idx % 2 == 0;"},
      {"Or", kSizes, "mask q_idx >= kv_idx || kv_idx < 7;"},
      {"ATensorInASelect", kSizes,
       "tensor t: f32[Skv]; score where(q_idx >= kv_idx, score, t[kv_idx]);"},
      {"TwoTensorsCompared", kSizes, doc + "mask doc[b, q_idx] == doc[b, kv_idx];"},
      {"HeadDimension100", "B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 192, D = 100", ""},
      {"HeadDimension320", kDeep320, causal},
      {"HeadDimension512", kDeep512, causal},
      {"HeadDimension1024", kDeep1024, causal},
      {"HeadDimension2000", kDeep2000, causal},
      {"HeadDimension320WithAlibi", kDeep320, alibi},
      {"HeadDimension2000WithAlibi", kDeep2000, alibi},
      {"PagesOfNoPowerOfTwo", kInPages,
       "layout q: bshd, k: paged(page = 48), v: paged(page = 48), o: bshd; lengths kv;",
       "cuDNN requires a page size that is a power of two"},
      {"BitsOfTheScore", kSizes, "score score + (int(score) & 3);",
       "cuDNN has no bit operations on integers"},
      // Known bad in other versions, or with other builders.
      {"AWindowOverMoreThan1024Keys", "B = 1, Hq = 2, Sq = 512, Skv = 1500, D = 64",
       "mask abs(q_idx - kv_idx) <= 64;"},
      {"GroupsAtOneRow", "B = 4, Hq = 8, Hkv = 2, Sq = 1, Skv = 777, D = 128", "lengths kv;"},
      {"SixBiases", kSizes,
       "tensor a: f32[Skv]; tensor c: f32[Sq]; tensor d: bf16[Hq]; tensor e: f32[B, Sq, Skv]; "
       "tensor f: f16[Hq, Skv]; tensor g: f32[Sq, Skv]; score score + a[kv_idx] + c[q_raw] + d[h] "
       "+ e[b, q_raw, kv_idx] + f[h, kv_idx] + g[q_raw, kv_idx];"},
      {"EightBits", kSizes, "dtype e4m3;", "error[E0504]"},
  };
}

class Facts : public ::testing::TestWithParam<Fact> {};

TEST_P(Facts, BecomesALegalGraphOrADiagnostic) {
  const Fact& fact = GetParam();
  const support::Source source("fact.attn", "attention fact {\n  dims " + std::string(fact.dims) +
                                                ";\n  " + fact.clauses + "\n}\n");
  diag::Sink sink(source);
  const auto attention = front_end(source, {}, sink);
  if (!attention) {
    ASSERT_STRNE(fact.refusal, "") << diag::to_text(sink);
    EXPECT_NE(diag::to_text(sink).find(fact.refusal), std::string::npos) << diag::to_text(sink);
    return;
  }
  CompileOptions options;
  options.target = targets::find_target("h200").value();
  options.worker.command = {ATTN_WORKER_PROGRAM, "worker"};
  options.lowering = "cudnn";
  const auto compiled = compile(*attention, source, {}, options);
  if (!compiled.ok()) {
    EXPECT_EQ(compiled.error().code, ErrorCode::unsupported);
    EXPECT_NE(compiled.error().payload.find("\"line\""), std::string::npos) << "it has a place";
    ASSERT_STRNE(fact.refusal, "") << compiled.error().to_text();
    EXPECT_NE(compiled.error().message.find(fact.refusal), std::string::npos)
        << compiled.error().to_text();
    return;
  }
  EXPECT_STREQ(fact.refusal, "");
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(compiled->plan.program)) {
    EXPECT_EQ(testing::crash_pattern(step->graph), "");
  }
}

INSTANTIATE_TEST_SUITE_P(CuDnn, Facts, ::testing::ValuesIn(facts()),
                         [](const auto& fact) { return fact.param.name; });

}  // namespace
}  // namespace attn::driver
