// `auto` takes the engine that was measured to be faster, also of what the table of
// predictions_test.cpp does not have.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "compiler/driver/driver.h"
#include "compiler/planner/pair.h"
#include "runtime/base/check.h"
#include "runtime/targets/targets.h"
#include "tests/support/contexts.h"

namespace attn::planner {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Milliseconds on an H200 with cuDNN 9.19, of one run of `attnc bench --device-only` with each
// engine (docs/engine.md); those of 8-bit floats on an H100. The spec is bench/variants/NAME.attn,
// or clauses.
struct Measured {
  const char* spec;
  sema::Bindings bindings;
  double native, cudnn;
};

const sema::Bindings kNarrow = {{"Dqk", "64"}, {"Dv", "64"}};
const sema::Bindings kWide = {{"Dqk", "256"}, {"Dv", "256"}, {"Hq", "8"}};

#define ATTN_TRAINING "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, D = 128; layout bshd; "
#define ATTN_PREFILL "dims B = 8, Hq = 32, Hkv = 8, Sq = 2048, Skv = 2048, D = 128; "
#define ATTN_OF_8_BITS "dtype e4m3; quantize per_tensor; layout bshd; "
const Measured kMeasured[] = {
    {"noop", kNarrow, 1.070, 1.163},
    {"causal", kNarrow, 0.580, 0.640},
    {"noop", kWide, 0.690, 0.758},
    {"causal", kWide, 0.395, 0.458},
    {"dims B = 2, Hq = 32, Hkv = 32, Sq = 4096, Skv = 4096, Dqk = 192, Dv = 128; layout bshd; "
     "mask q_idx >= kv_idx;",
     {},
     0.546,
     0.596},
    {"dims B = 1, Hq = 32, Hkv = 8, Sq = 32768, Skv = Sq, D = 128; layout bshd; "
     "mask q_idx >= kv_idx;",
     {},
     12.94,
     13.97},
    {"dims B = 1, Hq = 8, Hkv = 8, Sq = 131072, Skv = Sq, D = 128; layout bshd; "
     "mask q_idx >= kv_idx;",
     {},
     53.4,
     62.2},
    {ATTN_TRAINING "tensor shown: bool[32, 32] = (i1 - i0 * 5) % 32 < 5; "
                   "mask shown[q_idx // 128, kv_idx // 128];",
     {},
     0.314,
     0.391},
    {ATTN_TRAINING "dropout 0.1;", {}, 2.73, 3.64},
    {ATTN_TRAINING "mask q_idx >= kv_idx; dropout 0.1;", {}, 1.41, 1.91},
    {"dims B = 8, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, D = 128; layout thd; "
     "lengths q = 2048, kv = 2048; mask q_idx >= kv_idx;",
     {},
     1.72,
     1.86},
    {ATTN_PREFILL "layout paged(page = 64); mask q_idx >= kv_idx;", {}, 0.490, 0.530},
    {ATTN_PREFILL "layout paged(page = 16); mask q_idx >= kv_idx;", {}, 0.495, 0.654},
    {ATTN_OF_8_BITS "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = Sq, D = 64;", {}, 0.92, 1.01},
    {ATTN_OF_8_BITS "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = Sq, D = 64; "
                    "mask q_idx >= kv_idx;",
     {},
     0.526,
     0.573},
    {ATTN_OF_8_BITS "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = Sq, D = 96;", {}, 1.08, 1.13},
    {ATTN_OF_8_BITS "dims B = 4, Hq = 16, Hkv = 4, Sq = 4096, Skv = Sq, D = 256;",
     {},
     0.917,
     0.989},
    {ATTN_OF_8_BITS "dims B = 2, Hq = 16, Hkv = 16, Sq = 8192, Skv = Sq, D = 192;", {}, 1.54, 2.01},
    {ATTN_OF_8_BITS "dims B = 2, Hq = 16, Hkv = 16, Sq = 8192, Skv = Sq, Dqk = 192, Dv = 128; "
                    "mask q_idx >= kv_idx;",
     {},
     0.727,
     1.115},
};

ir::Attention attention_of(const std::string& spec, const sema::Bindings& bindings = {}) {
  const bool is_file = spec.find(' ') == spec.npos;
  const char* const outputs = spec.find("outputs") == spec.npos ? " outputs o, lse; }" : " }";
  const auto source =
      is_file
          ? support::Source::read(fmt::format("{}/bench/variants/{}.attn", ATTN_SOURCE_DIR, spec))
          : support::Source("spec.attn", "attention a { " + spec + outputs);
  ATTN_CHECK(source.ok(), spec);
  diag::Sink sink(*source);
  auto attention = driver::front_end(*source, bindings, sink);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  return std::move(*attention);
}

// The engine's best.
double predicted_ms(const ir::Attention& attention, std::string_view engine,
                    const target::Context& context = {}) {
  Search search(attention, engine, context);
  const auto best = search.next();
  ATTN_CHECK(best.ok(), best.error().to_text());
  return (*best)->lowered->predicted_ms;
}

std::string engine_taken(const ir::Attention& attention, const target::Context& context) {
  Search search(attention, kAnyLowering, context);
  const auto best = search.next();
  ATTN_CHECK(best.ok(), best.error().to_text());
  return std::string(engine_of((*best)->strategy->name)->name);
}

// Where engines take nearly the same time, either may be taken.
void expect_fast(const Measured& row, std::string_view taken) {
  constexpr double kNearlyTheSame = 1.1;
  const double ms = taken == "native" ? row.native : row.cudnn;
  EXPECT_LE(ms, kNearlyTheSame * std::min(row.native, row.cudnn)) << row.spec << ": " << taken;
}

TEST(Choice, IsTheFasterOneOfWhatWasMeasured) {
  for (const Measured& row : kMeasured) {
    const ir::Attention attention = attention_of(row.spec, row.bindings);
    expect_fast(row, engine_taken(attention, {}));
    const double native = predicted_ms(attention, "native");
    const double cudnn = predicted_ms(attention, "cudnn");
    // The ratio counts, not the time: how many scores are visible is not known of every row.
    EXPECT_NEAR(native / cudnn * (row.cudnn / row.native), 1, 0.4) << row.spec;
  }
}

// The same of many operations on each score, whose times are not predicted so well: they are those
// of a small table that cuDNN's strategies compute once, or of loops.
#define ATTN_LONG "dims B = 1, Hq = 4, Sq = 4096, D = 64; "
const Measured kLong[] = {
    {ATTN_LONG "score score + sum(j in 0..4: 1.0 / (1.0 + abs(q_idx - kv_idx - j)));",
     {},
     0.461,
     0.115},
    {ATTN_LONG "score score + sum(j in 0..128: 1.0 / (1.0 + abs(q_idx - kv_idx - j)));",
     {},
     12.47,
     0.115},
    {ATTN_LONG "mask any(j in 0..32: q_idx == kv_idx + j * j);", {}, 0.667, 0.032},
    {ATTN_LONG "mask any(j in 0..250: q_idx == kv_idx + j * j);", {}, 4.662, 0.085},
    {ATTN_LONG "tensor a: i32[Skv, 4]; mask any(j in 0..4: a[kv_idx, j] == q_idx % 64);",
     {},
     0.202,
     0.128},
};

TEST(Choice, OfManyOperationsIsTheFasterOne) {
  for (const Measured& row : kLong) {
    expect_fast(row, engine_taken(attention_of(row.spec, row.bindings), {}));
  }
}

// TFLOP/s on an H100 of 16 heads and 32,768 tokens in 8 bits (docs/benchmark.md).
struct MeasuredIn8Bits {
  std::int64_t depth;
  bool causal;
  std::int64_t size;
  double native, cudnn;
};
const MeasuredIn8Bits kMeasuredIn8Bits[] = {
    {128, false, 4096, 922, 989}, {128, false, 16384, 1051, 1034}, {128, false, 32768, 985, 1005},
    {128, true, 4096, 793, 667},  {128, true, 16384, 960, 981},    {128, true, 32768, 1014, 1007},
    {64, false, 4096, 571, 547},  {64, false, 16384, 617, 573},    {64, false, 32768, 627, 579},
    {64, true, 4096, 483, 421},   {64, true, 16384, 593, 558},     {64, true, 32768, 622, 580},
};

// Where both differ by less than 15 %, either may be taken: no figure is fitted to an H100.
TEST(Choice, In8BitsIsTheFasterOneOfWhatWasMeasured) {
  constexpr double kTokens = 32768;
  constexpr double kHeads = 16;
  target::Context context;
  context.gpu = target::gpu_of(targets::find_target("h100").value());
  for (const MeasuredIn8Bits& row : kMeasuredIn8Bits) {
    const ir::Attention attention = attention_of(
        fmt::format(ATTN_OF_8_BITS "dims B = {}, Hq = 16, Sq = {}, Skv = Sq, D = {}; {}",
                    static_cast<std::int64_t>(kTokens) / row.size, row.size, row.depth,
                    row.causal ? "mask q_idx >= kv_idx;" : ""));
    const double flop =
        4 * kHeads * kTokens * static_cast<double>(row.size * row.depth) * (row.causal ? 0.5 : 1);
    const auto tflops = [&](std::string_view engine) {
      return flop / predicted_ms(attention, engine, context) * 1e-9;
    };
    const double native = tflops("native"), cudnn = tflops("cudnn");
    SCOPED_TRACE(fmt::format("{} {} {}: native {:.0f}, cudnn {:.0f}", row.depth,
                             row.causal ? "causal" : "full", row.size, native, cudnn));
    if (std::abs(row.native / row.cudnn - 1) > 0.15) {
      EXPECT_EQ(engine_taken(attention, context), row.native > row.cudnn ? "native" : "cudnn");
    }
    EXPECT_NEAR(native / row.native, 1, 0.4);
    EXPECT_NEAR(cudnn / row.cudnn, 1, 0.2);
  }
}

// The same of backwards, with the kernels that prepare and convert.
const Measured kMeasuredBackwards[] = {
    {"causal", kNarrow, 1.71, 1.83},
    {"sliding_window_256", kNarrow, 0.478, 0.603},
    {ATTN_TRAINING "dropout 0.1;", {}, 7.05, 6.56},
    {ATTN_TRAINING "mask q_idx >= kv_idx; dropout 0.1;", {}, 3.68, 3.45},
    {"dims B = 4, Hq = 16, Hkv = 1, Sq = 4096, Skv = 4096, D = 128; layout bshd; "
     "mask q_idx >= kv_idx;",
     {},
     1.39,
     1.45},
    {"dims B = 4, Hq = 8, Hkv = 8, Sq = 4096, Skv = 4096, D = 256; layout bshd;", {}, 3.23, 3.39},
    {"dims B = 4, Hq = 16, Hkv = 16, Sq = 4096, Skv = 4096, Dqk = 192, Dv = 128; layout bshd; "
     "mask q_idx >= kv_idx;",
     {},
     2.63,
     1.99},
    {"dims B = 16, Hq = 32, Hkv = 8, Sq = 1024, Skv = 1024, D = 128; layout bshd; "
     "mask q_idx >= kv_idx;",
     {},
     1.01,
     1.11},
};

TEST(Choice, OfABackwardIsTheFasterOneOfWhatWasMeasured) {
  const target::Context context = attn::testing::in(true);
  for (const Measured& row : kMeasuredBackwards) {
    const ir::Attention attention = attention_of(row.spec, row.bindings);
    const double native = predicted_ms(attention, "native", context);
    expect_fast(row, engine_taken(attention, context));
    EXPECT_NEAR(native / row.native, 1, 0.3) << row.spec;
  }
}

// TFLOP/s that were published of other GPUs (docs/engine.md has the sources), of D 128 without a
// mask: FlashAttention-2, or -4 where it has kernels of warps, stands for kernels of warps.
struct Published {
  const char* target;
  const char* engine;
  bool backward;
  double tflops;
};
const Published kPublished[] = {
    {"a100", "native", false, 225},      {"a100", "native", true, 196},
    {"rtx4090", "native", false, 163},   {"rtx5090", "native", false, 190.6},
    {"rtx5090", "cudnn", false, 203.6},  {"rtx6000pro", "native", false, 379},
    {"rtx6000pro", "native", true, 289}, {"rtx6000pro", "cudnn", false, 409},
    {"rtx6000pro", "cudnn", true, 299},  {"b200", "cudnn", false, 1240},
};

TEST(Choice, PredictionsForOtherGpusAreWithinAQuarterOfWhatWasPublished) {
  constexpr double kForward = 4.0 * 2 * 16 * 8192 * 8192 * 128;
  const ir::Attention attention = attention_of(
      "dims B = 2, Hq = 16, Hkv = 16, Sq = 8192, Skv = 8192, D = 128; outputs o, lse; "
      "grad q, k, v;");
  for (const Published& row : kPublished) {
    target::Context context = attn::testing::in(row.backward);
    context.gpu = target::gpu_of(targets::find_target(row.target).value());
    const double flop = row.backward ? 2.5 * kForward : kForward;
    const double tflops = flop / predicted_ms(attention, row.engine, context) * 1e-9;
    EXPECT_NEAR(tflops / row.tflops, 1, 0.25)
        << row.target << " " << row.engine << (row.backward ? " backward " : " ") << tflops;
  }
}

// Kernels of warps are not predicted to be faster than cuDNN's where it has one of its own.
TEST(Choice, IsCudnnWhereItServesAndNothingWasMeasured) {
  target::Context context;
  for (const char* target : {"a100", "l40s", "rtx4090", "rtx5090", "b200"}) {
    context.gpu = target::gpu_of(targets::find_target(target).value());
    EXPECT_EQ(engine_taken(attention_of("causal"), context), "cudnn") << target;
  }
  context.gpu = target::gpu_of(targets::find_target("h100").value());
  EXPECT_EQ(engine_taken(attention_of("causal"), context), "native");
}

TEST(Choice, RefusalsOfAlternativesAreKept) {
  const target::Context context;
  Search search(attention_of("dims B = 1, Hq = 4, Sq = 512, Skv = 512, D = 580;"), kAnyLowering,
                context);
  EXPECT_TRUE(search.next().ok());
  const auto& told = search.refused().told;
  EXPECT_EQ(std::ranges::find(told, "native", &Refusal::lowering), told.end());
  const auto& all = search.refused().all;
  const auto native = std::ranges::find(all, "native", &Refusal::lowering);
  ASSERT_NE(native, all.end());
  EXPECT_THAT(native->error.message, HasSubstr("(this is 580)"));
}

// cuDNN refuses 8 bits that the own kernels may compute, so their refusal is told as well;
// and no lowering is recommended that does not serve.
TEST(Choice, RefusalsOf8BitsAreThoseOfBothEngines) {
  target::Context context;
  context.gpu.sm = 100;
  const ir::Attention attention = attention_of(
      "dims B = 1, Hq = 2, Skv = 128, Sq = 128, D = 264; score score - 0.1 * "
      "q_idx; " ATTN_OF_8_BITS);
  Search search(attention, kAnyLowering, context);
  const auto best = search.next();
  ASSERT_FALSE(best.ok());
  EXPECT_THAT(best.error().message, HasSubstr("score expressions"));
  EXPECT_THAT(best.error().notes, Contains(HasSubstr("has no forward above D 256")));
  EXPECT_THAT(best.error().notes, Not(Contains(HasSubstr("--strategy composite"))));
  const ir::Attention served =
      attention_of("dims B = 1, Hq = 2, Skv = 128, Sq = 128, D = 128; " ATTN_OF_8_BITS);
  const auto unified = Search(served, "unified", context).next();
  ASSERT_FALSE(unified.ok());
  EXPECT_THAT(unified.error().notes, Contains("`--strategy composite` does"));
}

constexpr const char* kRandom =
    "dims B = 4, Hq = 32, Sq = 4096, Skv = 4096, D = 128; dropout 0.1; mask q_idx >= kv_idx;";

// The strategy, or the engine, that is searched; kAnyLowering for several.
std::string searched(const Search& search) {
  std::set<std::string> engines;
  for (const Candidate& each : search.all()) engines.insert(engine_name_of(each.strategy->name));
  if (engines.size() > 1) return std::string(kAnyLowering);
  const bool is_one = search.all().size() == 1;
  return is_one ? std::string(search.all().front().strategy->name) : *engines.begin();
}

std::unique_ptr<Search> search_of_pair(const ir::Attention& attention, std::string_view name,
                                       plan::Direction direction = plan::Direction::forward) {
  return Pair(attention, name, {}).search(direction).value();
}

TEST(Choice, OfAPairWithRandomDropoutIsOneEngine) {
  const ir::Attention random = attention_of(kRandom);
  const std::string one = searched(*search_of_pair(random, kAnyLowering));
  EXPECT_THAT(one, AnyOf("native", "cudnn"));  // both take nearly the same time
  EXPECT_EQ(searched(*search_of_pair(random, kAnyOrSlow)), one);
  EXPECT_EQ(searched(*search_of_pair(random, "composite")), "composite");
  EXPECT_EQ(searched(*search_of_pair(attention_of("causal"), kAnyLowering)), kAnyLowering);
  const ir::Attention paged = attention_of(std::string(kRandom) + "layout paged(page = 64);");
  EXPECT_EQ(searched(*search_of_pair(paged, kAnyLowering)), kAnyLowering);  // has no backward
  // cuDNN has no forward of this, but a backward, which would drop other weights.
  constexpr const char* kHalf = "tensor s: f32[Hq]; sink s[h]; outputs o, max; grad q, k, v;";
  const ir::Attention half = attention_of(std::string(kRandom) + kHalf);
  EXPECT_EQ(searched(*search_of_pair(half, kAnyLowering)), "native");
}

// What was compared is not lowered again.
TEST(Choice, OfAPairIsSearchedOnce) {
  Pair pair(attention_of(kRandom), kAnyLowering, {});
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
    const std::unique_ptr<Search> search = pair.search(direction).value();
    const auto is_lowered = [](const Candidate& each) { return each.lowered.has_value(); };
    const auto lowered = std::ranges::find_if(search->all(), is_lowered);
    ASSERT_NE(lowered, search->all().end());
    EXPECT_EQ(search->next().value(), &*lowered);
    EXPECT_THAT(search->refused().left_out, SizeIs(1));
  }
}

// The refusal when the engine that is taken for a pair of these clauses does not build it.
Error refusal_of_pair(const std::string& clauses, plan::Direction direction) {
  const auto search = search_of_pair(attention_of(clauses), kAnyLowering, direction);
  Candidate failed{search->all().front().strategy};
  search->failed(failed, {ErrorCode::unsupported, "it does not build"});
  return search->all_failed();
}

TEST(Choice, OfAPairIsNotTheEngineWithALongBuild) {
  std::string score = "score score";
  for (int i = 0; i < 130; ++i) score += fmt::format(" + tanh(score - {})", i);
  const std::string clauses =
      "dims B = 4, Hq = 32, Sq = 4096, Skv = 4096, D = 64; dropout 0.1; grad q, k, v; " + score +
      ";";
  const auto search =
      search_of_pair(attention_of(clauses), kAnyLowering, plan::Direction::backward);
  EXPECT_EQ(searched(*search), "native");
  ASSERT_THAT(search->refused().left_out, SizeIs(1));
  EXPECT_THAT(search->refused().left_out.front().error.message,
              HasSubstr("cuDNN would compile its graph of"));
}

TEST(Choice, OfAPairSaysWhyOtherEnginesAreLeftOut) {
  constexpr const char* kSmall = "dims B = 2, Hq = 4, Sq = 256, Skv = 256; dropout 0.1; ";
  constexpr auto kBackward = plan::Direction::backward;
  const Error deep = refusal_of_pair(
      std::string(kSmall) + "dims D = 512; deterministic; grad q, k, v;", kBackward);
  EXPECT_EQ(deep.message, "attnc's own engine has no backward above D 256 (this is 512)");
  EXPECT_THAT(deep.notes, Contains(HasSubstr("`: it does not build")));
  const Error forward = refusal_of_pair(
      std::string(kSmall) + "dims D = 512; deterministic; grad q, k, v;", plan::Direction::forward);
  EXPECT_EQ(forward.message, "it does not build");
  EXPECT_THAT(forward.notes, Contains("strategy `native`: its backward is refused: attnc's own "
                                      "engine has no backward above D 256 (this is 512)"));
  const Error slower =
      refusal_of_pair(std::string(kSmall) + "dims D = 64; deterministic; grad q, k, v;", kBackward);
  EXPECT_EQ(slower.message, "it does not build");
  // It may be of either engine: both take nearly the same time.
  EXPECT_THAT(slower.notes,
              Contains(HasSubstr("both directions must draw the same random numbers, and are "
                                 "predicted to take")));
  EXPECT_THAT(slower.notes,
              Contains(AnyOf("  `--engine native` takes it", "  `--engine cudnn` takes it")));
}

TEST(Choice, OfAPairNamesWhatTheOtherEngineLacks) {
  const ir::Attention learned = attention_of(
      "dims B = 2, Hq = 4, Sq = 256, Skv = 256, D = 64; dropout 0.1; learn bias: bf16[Hq, Sq, Skv];"
      " score score + bias[h, q_idx, kv_idx]; grad q, bias;");
  constexpr const char* kWhy = "the gradient of `bias` depends on what random dropout keeps";
  const auto forward = search_of_pair(learned, kAnyLowering);
  EXPECT_EQ(searched(*forward), "native");
  const std::vector<Refusal>& left_out = forward->refused().left_out;
  ASSERT_THAT(left_out, SizeIs(1));
  EXPECT_THAT(left_out[0].error.message, HasSubstr(kWhy));
  EXPECT_THAT(left_out[0].error.message, StartsWith("its backward is refused"));
  const auto backward = search_of_pair(learned, kAnyLowering, plan::Direction::backward);
  ASSERT_THAT(backward->refused().told, SizeIs(1));
  EXPECT_THAT(backward->refused().told[0].error.message, StartsWith(kWhy));
}

// What a refusal proposes would serve, so `deterministic` is named where all else is served.
TEST(Choice, OfEightBitsNamesDeterminismLast) {
  constexpr const char* kEight =
      "dtype e4m3; quantize per_tensor; deterministic; grad q, k, v; outputs o, lse;";
  const target::Context context{.direction = plan::Direction::backward};
  const auto message = [&](const std::string& clauses) {
    return Search(attention_of(kEight + clauses), "composite", context).next().error().message;
  };
  constexpr const char* kDims = "dims B = 2, Hq = 4, Sq = 256, Skv = 256, D = ";
  EXPECT_THAT(message(std::string(kDims) + "64;"), HasSubstr("needs head dimensions of 128"));
  EXPECT_THAT(message(std::string(kDims) + "128; dropout 0.1;"), HasSubstr("with dropout"));
  EXPECT_THAT(message(std::string(kDims) + "128;"), HasSubstr("the same in every run"));
}

// In every call that may compile a half of a pair.
TEST(Choice, OfHalfAPairIsThatOfThePair) {
  const ir::Attention random = attention_of(kRandom);
  const auto lowering = [](const ir::Attention& attention, bool paired, plan::Direction direction) {
    driver::CompileOptions options;
    options.target = targets::find_target("h200").value();
    options.paired = paired;
    options.direction = direction;
    return searched(**driver::search_of(attention, options));
  };
  constexpr auto kForward = plan::Direction::forward;
  const ir::Attention alone = attention_of(std::string(kRandom) + "outputs o;");
  EXPECT_EQ(lowering(alone, false, kForward), kAnyLowering);
  const std::string one = searched(*search_of_pair(random, kAnyLowering));
  EXPECT_EQ(lowering(random, false, kForward), one);  // a backward may take its lse
  EXPECT_EQ(lowering(random, true, kForward), one);
  EXPECT_EQ(lowering(random, false, plan::Direction::backward), one);
  EXPECT_EQ(lowering(attention_of(std::string(kRandom) + "outputs o; grad q;"), false, kForward),
            one);
}

}  // namespace
}  // namespace attn::planner
