#include "compiler/engines/native/backward.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/masks/mask_analysis.h"
#include "compiler/nvrtc/nvrtc.h"
#include "tests/support/contexts.h"
#include "tests/support/golden.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::backward_tests {
namespace {

using masks::testing::of_spec;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSizes = "dims B = 2, Hq = 8, Hkv = 2, Sq = 300, Skv = 400, D = 128; ";
// Heads that share no keys are not divided.
constexpr const char* kOwnKeys = "dims B = 2, Hq = 8, Hkv = 8, Sq = 300, Skv = 400, D = 128; ";
// One block of keys of each head is divided.
constexpr const char* kWithGlobalKeys =
    "mask kv_idx < 64 || abs(q_idx - kv_idx) < 64; "
    "dims B = 1, Hq = 16, Hkv = 16, Sq = 16384, Skv = 16384, ";

ir::Attention of(const std::string& clauses) { return of_spec("attention a { " + clauses + " }"); }

Result<NativeProgram> lowered(const std::string& clauses, std::size_t refused = 0) {
  const ir::Attention attention = of(clauses);
  const masks::MaskAnalysis mask(attention, nullptr);
  const target::Context context = attn::testing::in(true);
  return NativePrograms(attention, masks::varying(mask.axes(), attention.dims), context)
      .make(refused);
}

const plan::KernelStep& step_of(const NativeProgram& made) {
  return std::get<plan::KernelStep>(made.program.steps.back());
}

std::string source_of(const std::string& clauses) {
  const Result<NativeProgram> made = lowered(clauses);
  return made.ok() ? step_of(*made).source : made.error().to_text();
}

std::string refusal(const std::string& clauses) {
  const Result<NativeProgram> made = lowered(clauses);
  if (made.ok()) return "";
  EXPECT_EQ(made.error().code, ErrorCode::unsupported);
  return made.error().message;
}

std::vector<std::string> kernels_of(const NativeProgram& made) {
  std::vector<std::string> names;
  for (const plan::Launch& launch : step_of(made).launches) names.push_back(launch.kernel);
  return names;
}

std::int64_t elements_of(const NativeProgram& made, const std::string& name) {
  const auto found = std::ranges::find(made.program.internals, name, &plan::TensorInfo::name);
  return found == made.program.internals.end() ? 0 : found->dims[0];
}

TEST(NativeBackward, IsThreeLaunches) {
  const NativeProgram made = lowered(kOwnKeys).value();
  ASSERT_EQ(made.program.steps.size(), 1U);
  const plan::KernelStep& step = step_of(made);
  EXPECT_THAT(kernels_of(made), ElementsAre("attn_prepare", "attn_backward", "attn_convert"));
  EXPECT_THAT(step.outputs, ElementsAre("dq", "dk", "dv", "native.exponents", "native.deltas"));
  EXPECT_THAT(step.zeroed, ElementsAre("native.counter", "native.sums"));
  const plan::Launch& backward = step.launches[1];
  EXPECT_EQ(backward.grid[0], 2 * 8 * 4);  // heads of keys, blocks of keys
  EXPECT_EQ(backward.block[0], 384);
  EXPECT_LE(backward.shared_bytes, 227 << 10);
  // 304 rows are a multiple of 16; 64 more do not exist.
  EXPECT_EQ(elements_of(made, "native.deltas"), 2 * 8 * 368);
  EXPECT_EQ(elements_of(made, "native.sums"), 2 * 8 * 368 * 128);
  EXPECT_EQ(step.launches[0].grid[0], 2 * 8 * 368 * 16 / 256);
  EXPECT_EQ(step.launches[2].grid[0], 2 * 8 * 10);
}

// Each part stores its sums of dk and dv, which the last kernel adds.
TEST(NativeBackward, BlocksOfKeysAreDividedWhereItemsAreFew) {
  const NativeProgram made = lowered(kSizes).value();
  EXPECT_THAT(kernels_of(made), ElementsAre("attn_prepare", "attn_backward", "attn_convert"));
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("kHeadsOfKey = 4;"), Not(HasSubstr("kItems = ")),
                    HasSubstr("kDivided = 80;")));
  const std::int64_t parts = 2 * 2 * 4 * 5;  // heads of keys, blocks, and parts of 20 steps
  EXPECT_EQ(step_of(made).launches[1].grid[0], parts);
  EXPECT_EQ(elements_of(made, "native.key_sums"), parts * 128 * (128 + 128));
  EXPECT_EQ(step_of(made).launches[2].grid[0], parts * 8 + 2 * 8 * 10);
  const std::string many = "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, D = 64; ";
  EXPECT_THAT(source_of(many), Not(HasSubstr("kDivided = ")));
  const std::string few = "dims B = 4, Hq = 16, Hkv = 1, Sq = 4096, Skv = 4096, D = 64; ";
  EXPECT_THAT(source_of(few), Not(HasSubstr("kDivided = "))) << "128 items of equal length";
  EXPECT_THAT(source_of(few + "mask q_idx >= kv_idx;"), HasSubstr("kDivided = "));
}

// Blocks that are not divided stay items of their own.
TEST(NativeBackward, BlocksOfKeysThatMostRowsSeeAreDivided) {
  const NativeProgram known = lowered(std::string(kWithGlobalKeys) + "D = 64;").value();
  EXPECT_THAT(step_of(known).source,
              AllOf(HasSubstr("kItems = 2048;"), HasSubstr("kDivided = 48;"),
                    HasSubstr("kParts[] = {\n    {0, 0, 0, 3}, {0, 0, 1, 3},")));
  EXPECT_EQ(elements_of(known, "native.key_sums"), 48 * 128 * (64 + 64));
  const std::string sizes = "dims B = 1, Hq = 16, Hkv = 16, Sq = 16384, Skv = 16384, D = 64; ";
  const std::string mask =
      "tensor g: bool[Skv]; mask g[kv_idx] || g[q_idx] || abs(q_idx - kv_idx) < 64;";
  const NativeProgram made = lowered(sizes + mask).value();
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("kItems = 2048;"), HasSubstr("kMostParts = 528;"),
                    HasSubstr("kDivided = 528;"), HasSubstr("kSharesOfAll = 264;")));
  EXPECT_EQ(elements_of(made, "native.counter"), 4 + 4 * (1 + 528));
  EXPECT_EQ(elements_of(made, "native.key_sums"), 528 * 128 * (64 + 64));
  EXPECT_THAT(source_of(sizes + "learn t: f32[Hq]; score score * t[h]; " + mask),
              HasSubstr("kMostParts = 0;"))
      << "a sum of each block of keys of a head";
}

// Blocks that are not divided have no sums.
TEST(NativeBackward, OrderedPartsAreAmongBlocksOfKeysInOrder) {
  const NativeProgram made =
      lowered(std::string(kWithGlobalKeys) + "D = 64; deterministic;").value();
  EXPECT_THAT(
      step_of(made).source,
      AllOf(HasSubstr("kItems = 2032;"), HasSubstr("kDivided = 96;"), HasSubstr("kSection = 4;"),
            HasSubstr("int divided_blocks() const { return 16;"),
            HasSubstr("kDividedBlocks[] = {{0, 0}, {6, 6}, {12, 12}, {18, 18}, {532, 24}, ")));
  EXPECT_EQ(elements_of(made, "native.key_sums"), 96 * 128 * (64 + 64));
  EXPECT_THAT(source_of(std::string(kSizes) + "deterministic;"),
              AllOf(Not(HasSubstr("kItems = ")), Not(HasSubstr("kDividedBlocks"))))
      << "parts are all items";
}

// 20 of 82,000 blocks of keys are divided.
TEST(NativeBackward, SumsOfPartsDoNotGrowWithTheSequence) {
  const std::string sizes = "dims B = 1, Hq = 20, Hkv = 20, Sq = 524288, Skv = 524288, D = 128; ";
  const std::string mask = "mask kv_idx < 64 || abs(q_idx - kv_idx) <= 128; ";
  for (const char* order : {"", "deterministic;"}) {
    const std::int64_t sums = elements_of(lowered(sizes + mask + order).value(), "native.key_sums");
    EXPECT_GT(sums, 0) << order;
    EXPECT_LT(sums, std::int64_t{8 * 132} * 128 * (128 + 128)) << order;
  }
}

TEST(NativeBackward, TensorsAreThoseOfABackward) {
  const NativeProgram made =
      lowered(std::string(kSizes) + "tensor t: f32[Hq]; score score * t[h]; grad q, k, v;").value();
  std::vector<std::string> names;
  for (const plan::TensorInfo& tensor : made.program.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("q", "k", "v", "t", "o", "lse", "do", "dq", "dk", "dv"));
  const auto map = std::get<plan::TensorMapArgument>(step_of(made).launches[1].arguments[3]);
  EXPECT_EQ(map.tensor.name, "do");
  EXPECT_THAT(map.dims, ElementsAre(128, 300, 8, 2));
  EXPECT_THAT(map.box, ElementsAre(64, 64, 1, 1));
}

TEST(NativeBackward, ComputesTheGradientsThatAreWanted) {
  const NativeProgram keys = lowered(std::string(kOwnKeys) + "grad k, v;").value();
  EXPECT_THAT(kernels_of(keys), ElementsAre("attn_prepare", "attn_backward"));
  EXPECT_EQ(elements_of(keys, "native.sums"), 0);
  EXPECT_THAT(step_of(keys).source,
              AllOf(HasSubstr("tensors.dk = dk;"), HasSubstr("tensors.dv = dv;"),
                    Not(HasSubstr("tensors.query_sums"))));
  const NativeProgram queries = lowered(std::string(kOwnKeys) + "grad q;").value();
  EXPECT_THAT(step_of(queries).source,
              AllOf(HasSubstr("tensors.query_sums = sums;"), Not(HasSubstr("tensors.dk")),
                    Not(HasSubstr("tensors.dv"))));
}

// Each block of rows of a head has a turn.
TEST(NativeBackward, SumsAreOrderedIfTheyMustBeDeterministic) {
  const NativeProgram made =
      lowered(std::string(kSizes) + "deterministic; mask q_idx >= kv_idx;").value();
  EXPECT_EQ(elements_of(made, "native.turns"), 2 * 8 * 5);
  EXPECT_THAT(step_of(made).zeroed, ElementsAre("native.counter", "native.sums", "native.turns"));
  EXPECT_THAT(step_of(made).source, AllOf(HasSubstr("kOrdered = true"), HasSubstr("OrderedLists")));
  EXPECT_THAT(source_of(std::string(kSizes) + "deterministic; grad k;"),
              Not(HasSubstr("kOrdered")));
  EXPECT_THAT(source_of(kSizes), Not(HasSubstr("kOrdered")));
}

TEST(NativeBackward, HeadDimensionsAreRoundedUp) {
  EXPECT_THAT(source_of("dims B = 1, Hq = 2, Sq = 64, Skv = 64, Dqk = 72, Dv = 40;"),
              AllOf(HasSubstr("kDepth = 128;"), HasSubstr("kWidth = 64;"),
                    HasSubstr("Keys = kernels::Places<9216, 72, 144, 1, 72, true, false>;"),
                    HasSubstr("Outputs = kernels::Places<5120, 40, 80, 1, 40, true, false>;")));
}

// With more than 128 columns, a block of threads has 64 keys.
TEST(NativeBackward, WideHeadsTakeFewerKeysAndRows) {
  const std::string dims = "dims B = 1, Hq = 2, Sq = 640, Skv = 640, ";
  const NativeProgram latent = lowered(dims + "Dqk = 192, Dv = 128;").value();
  EXPECT_THAT(step_of(latent).source,
              AllOf(HasSubstr("kBlockRows = 64;"), HasSubstr("kKeys = 64;")));
  EXPECT_EQ(step_of(latent).launches[1].grid[0], 2 * 10 * 3) << "parts of 10 steps";
  const NativeProgram wide = lowered(dims + "D = 256;").value();
  EXPECT_THAT(step_of(wide).source, HasSubstr("kBlockRows = 48;")) << "64 do not fit";
  EXPECT_LE(step_of(wide).launches[1].shared_bytes, 227 << 10);
  EXPECT_THAT(step_of(*lowered(dims + "D = 256;", 1)).source, HasSubstr("kBlockRows = 32;"));
  EXPECT_FALSE(lowered(dims + "D = 256;", 2).ok());
}

// Rows of q are not packed here, and so neither are those of dq and o.
TEST(NativeBackward, PackedSequencesShareAMap) {
  const NativeProgram made = lowered(std::string(kSizes) + "layout k: thd, v: thd;").value();
  EXPECT_THAT(kernels_of(made), ElementsAre("attn_prepare", "attn_backward", "attn_convert"));
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("tensors.q = &q;"), HasSubstr("tensors.k = &k;"),
                    Not(HasSubstr("tensors.row_starts")),
                    HasSubstr("tensors.column_starts = cu_seqlens_kv;"),
                    HasSubstr("Keys = kernels::Places<102400, 128, 256, 1, 128, true, true>;"),
                    HasSubstr("prepare<Constants>(o, d_o, lse, nullptr, expressions")));
  const NativeProgram all = lowered(std::string(kSizes) + "layout thd;").value();
  EXPECT_THAT(step_of(all).source,
              AllOf(HasSubstr("tensors.row_starts = cu_seqlens_q;"),
                    HasSubstr("convert<Constants>(sums, cu_seqlens_q, expressions, dq, ")));
}

// Each warp has a sum of each block of keys of a head; the elements of `t` add those of their
// heads.
TEST(NativeBackward, LearnedTensorsOfHeadsHaveGradients) {
  const NativeProgram made =
      lowered(std::string(kSizes) + "learn t: f32[4]; score score * t[h // 2] + t[0];").value();
  EXPECT_THAT(kernels_of(made),
              ElementsAre("attn_prepare", "attn_backward", "attn_d_t", "attn_convert"));
  EXPECT_EQ(step_of(made).launches[2].grid[0], 4);
  EXPECT_THAT(step_of(made).outputs, ::testing::Contains("d_t"));
  EXPECT_EQ(elements_of(made, "native.parts"), 2 * (2 * 8 * 4 * 8));
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("kParts = 2, kHeld = 2;"), HasSubstr("ScoredBy<2>")));
}

// Tensors of other indices have words, after three that bounds are made of; diagonals of all heads
// have one each. A bias that heads share has one for each element.
TEST(NativeBackward, OtherLearnedTensorsHaveIntegerSums) {
  const NativeProgram made =
      lowered(std::string(kSizes) +
              "learn t: f32[Hq, Sq + Skv]; score score + t[h, q_idx - kv_idx + Skv];")
          .value();
  EXPECT_THAT(kernels_of(made), ElementsAre("attn_prepare", "attn_largest", "attn_backward",
                                            "attn_diagonals_0", "attn_d_t", "attn_convert"));
  EXPECT_EQ(elements_of(made, "native.words"), 4 + 9 * 8 * 700 + 2 * 8 * 699);
  EXPECT_EQ(elements_of(made, "native.parts"), 0);
  EXPECT_THAT(
      step_of(made).source,
      AllOf(HasSubstr("kParts = 1, kHeld = 0;"), HasSubstr("kDiagonals = true"),
            HasSubstr("{kernels::Reach::diagonal, -1, true, 50404, 11184, 10, 0, 0, 1, false}")));
  const NativeProgram bias =
      lowered(std::string(kSizes) + "learn t: f16[Sq, Skv]; score score + t[q_idx, kv_idx];")
          .value();
  EXPECT_THAT(kernels_of(bias), ElementsAre("attn_prepare", "attn_largest", "attn_backward",
                                            "attn_d_t", "attn_convert"));
  EXPECT_EQ(elements_of(bias, "native.words"), 4 + 300 * 400);
  EXPECT_THAT(step_of(bias).source, HasSubstr("kernels::F16::narrow((float)(sum))"));
  EXPECT_GT(bias.work.learned, made.work.learned);
}

// What no block of scores covers is zeroed before.
TEST(NativeBackward, ABiasOfEachScoreIsStored) {
  const std::string bias =
      std::string(kSizes) + "learn t: bf16[B, Hq, Sq, Skv]; score score + t[b, h, q_idx, kv_idx];";
  EXPECT_THAT(kernels_of(lowered(bias).value()),
              ElementsAre("attn_prepare", "attn_backward", "attn_convert"));
  const NativeProgram made = lowered(bias + "mask q_idx >= kv_idx;").value();
  EXPECT_THAT(kernels_of(made),
              ElementsAre("attn_prepare", "attn_d_t", "attn_backward", "attn_convert"));
  EXPECT_EQ(elements_of(made, "native.words"), 0);
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("tensors.table = &table;"), HasSubstr("tensors.own[0] = d_t;"),
                    HasSubstr("static_cast<unsigned short*>(gradient)[i] = ")));
}

// Its sums of products and derivatives may be infinite where the score is.
TEST(NativeBackward, SlopesAreInlined) {
  const std::string squared = source_of(std::string(kSizes) + "score score * score;");
  EXPECT_THAT(squared, AllOf(HasSubstr("kScore = true, kMask = false"),
                             HasSubstr("kFiniteSlope = false"), HasSubstr("kernels::Scored{")));
  const std::string capped = source_of(std::string(kSizes) + "score 30.0 * tanh(score / 30.0);");
  EXPECT_THAT(capped, HasSubstr("kFiniteSlope = true"));
  EXPECT_THAT(source_of(kSizes), AllOf(HasSubstr("kScore = false"), Not(HasSubstr("evaluate("))));
}

TEST(NativeBackward, OtherTensorsAreReadWithinTheirEnds) {
  EXPECT_THAT(source_of(std::string(kSizes) +
                        "tensor t: f32[Sq, Skv]; score score + t[q_idx, kv_idx]; grad q, k, v;"),
              HasSubstr("kReadsTensors = true"));
  EXPECT_THAT(source_of(std::string(kSizes) + "mask q_idx >= kv_idx;"),
              HasSubstr("kReadsTensors = false"));
}

// It is copied beside the rows of q, if it has 16-bit elements, and there is room.
TEST(NativeBackward, TablesOfRowsAndColumnsAreCopied) {
  const std::string table = "[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx]; grad q, k, v;";
  const NativeProgram made = lowered(std::string(kSizes) + "tensor t: f16" + table).value();
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("kTable = true;"), Not(HasSubstr("kTableOfBatch")),
                    HasSubstr("kTableOfHead = true;"), HasSubstr("using Entry = kernels::F16;"),
                    HasSubstr("kReadsTensors = false"), HasSubstr(" + entry;"),
                    HasSubstr("tensors.table = &table;")));
  const auto map = std::get<plan::TensorMapArgument>(step_of(made).launches[1].arguments[11]);
  EXPECT_EQ(map.tensor.name, "t");
  EXPECT_THAT(map.dims, ElementsAre(400, 300, 8, 1));
  EXPECT_THAT(map.box, ElementsAre(64, 64, 1, 1));
  EXPECT_LE(step_of(made).launches[1].shared_bytes, 227 << 10);
  EXPECT_THAT(source_of(std::string(kSizes) + "tensor t: f32" + table),
              AllOf(Not(HasSubstr("kTable")), HasSubstr("kReadsTensors = true")));
}

// An exponential has a factor anyway.
TEST(NativeBackward, ConstantFactorsAreNoPartOfScores) {
  EXPECT_THAT(source_of(std::string(kSizes) + "score 30.0 * tanh(score / 30.0);"),
              HasSubstr("float weight() const { return 30.0f; }"));
}

TEST(NativeBackward, MasksThatReadTensorsHaveListsThatTheGpuMakes) {
  const std::string mask = "tensor d: i32[B, Skv]; mask d[b, q_idx] == d[b, kv_idx];";
  const NativeProgram made = lowered(std::string(kSizes) + mask).value();
  EXPECT_THAT(kernels_of(made),
              ElementsAre("attn_lists", "attn_prepare", "attn_backward", "attn_convert"));
  EXPECT_EQ(elements_of(made, "native.counter"), 1 + 2) << "lists of each batch";
  EXPECT_EQ(elements_of(made, "native.runs"), 2 * 4 * 5 * 2) << "4 blocks of keys, 5 of rows";
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("list_rows<ListConstants>("),
                    HasSubstr("Transposed<Expressions>{expressions}"),
                    HasSubstr("kRowsOfTile = 128;"), HasSubstr("Lists{tiles, runs}")));
  ASSERT_TRUE(made.work.lists.has_value());
  EXPECT_THAT(kernels_of(lowered(std::string(kSizes) + "deterministic; " + mask).value()),
              ElementsAre("attn_prepare", "attn_backward", "attn_convert"))
      << "turns must be known";
  const std::string by_head = "tensor d: i32[Hq, Skv]; mask d[h, q_idx] == d[h, kv_idx];";
  EXPECT_THAT(kernels_of(lowered(std::string(kSizes) + by_head).value()),
              ElementsAre("attn_prepare", "attn_backward", "attn_convert"))
      << "heads that share keys share a list";
}

TEST(NativeBackward, RowsOfBandsAreComputed) {
  for (const char* mask : {"align bottom_right; lengths q, kv; mask q_idx >= kv_idx;",
                           "tensor n: i32[B]; mask kv_idx < n[b] || q_idx >= kv_idx;",
                           "param w: i32; mask abs(q_idx - kv_idx) <= w;"}) {
    const NativeProgram made = lowered(std::string(kSizes) + mask).value();
    EXPECT_THAT(kernels_of(made), ElementsAre("attn_prepare", "attn_backward", "attn_convert"));
    EXPECT_THAT(step_of(made).source, AllOf(HasSubstr("kBand = true;"), HasSubstr("Band rows(")));
    EXPECT_EQ(elements_of(made, "native.counter"), 1);
    EXPECT_FALSE(made.work.lists);
    EXPECT_TRUE(step_of(made).facts->has_band);
    EXPECT_FALSE(step_of(made).facts->blocks);
  }
  const std::string by_head = "tensor w: i32[Hq]; mask abs(q_idx - kv_idx) <= w[h];";
  EXPECT_THAT(source_of(std::string(kOwnKeys) + by_head), HasSubstr("kBand = true;"));
  EXPECT_THAT(source_of(std::string(kSizes) + by_head), Not(HasSubstr("kBand")))
      << "heads that share keys share their rows";
}

// As many parts for each block of keys: how many rows see it is known at an execute alone.
TEST(NativeBackward, BlocksOfKeysOfBandsAreDividedAlike) {
  const NativeProgram made =
      lowered(
          "dims B = 1, Hq = 4, Hkv = 1, Sq = 8192, Skv = 512, D = 64; align bottom_right; "
          "lengths kv; mask q_idx >= kv_idx;")
          .value();
  const plan::KernelFacts facts = step_of(made).facts.value();
  EXPECT_GT(facts.divided, facts.items);
  EXPECT_EQ(facts.divided % facts.items, 0);
  EXPECT_THAT(step_of(made).source, HasSubstr("struct DividedLists : Lists"));
}

TEST(NativeBackward, ClassesOfAModulusAreHeads) {
  const NativeProgram made =
      lowered(
          "dims B = 2, Hq = 4, Hkv = 2, Sq = 512, Skv = 512, D = 64; layout bshd;"
          "mask abs(q_idx - kv_idx) <= 128 && (q_idx - kv_idx) % 4 == 0;")
          .value();
  EXPECT_FALSE(made.parts.empty());
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("kHeads = 16;"), HasSubstr("kHeadsOfClass = 4;"),
                    HasSubstr("kRows = 128;"), HasSubstr("kStatisticsClass = 1;"),
                    HasSubstr("Keys = kernels::Places<65536, 64, 512, 1, 64, true, false>;"),
                    HasSubstr("Statistics = kernels::Places<2048, 512, 4, 0, 0, false, false>;")));
}

// Where lists are short, as in windows, a head is done before the next.
TEST(NativeBackward, HeadsFollowEachOtherInsideOfLongLists) {
  const std::string dims = "dims B = 8, Hq = 8, Hkv = 2, Sq = 4096, Skv = 4096, D = 64; ";
  EXPECT_THAT(source_of(dims), Not(HasSubstr("kHeadsOutside")));
  EXPECT_THAT(source_of(dims + "mask q_idx >= kv_idx && q_idx - kv_idx < 256;"),
              HasSubstr("kHeadsOutside = true"));
  EXPECT_THAT(source_of(dims + "mask q_idx >= kv_idx;"), HasSubstr("kSection = 4;"));
  const std::string own_keys = "dims B = 8, Hq = 8, Hkv = 8, Sq = 4096, Skv = 4096, D = 64; ";
  EXPECT_THAT(source_of(own_keys + "mask abs(q_idx - kv_idx) <= 128 || kv_idx < 64;"),
              HasSubstr("kSection = 64;"))
      << "all heads of keys";
}

TEST(NativeBackward, LengthsCutLists) {
  const std::string text = source_of(std::string(kSizes) + "lengths q, kv;");
  EXPECT_THAT(text, AllOf(HasSubstr("kLengths = true"),
                          HasSubstr("int keys(int b) const { return ::min(t_lengths_kv[b], 400)"),
                          HasSubstr("float* deltas, const int* t_lengths_q")));
  EXPECT_THAT(source_of(kSizes), HasSubstr("int queries(int b) const { return 300; }"));
}

TEST(NativeBackward, DropoutIsThatOfTheForward) {
  const std::string random = source_of(std::string(kSizes) + "dropout 0.25;");
  EXPECT_THAT(random, AllOf(HasSubstr("kKeep = false, kRandom = true, kSigmoid = false;"),
                            HasSubstr("kKeptScale = 1.3333"), HasSubstr("kDropped = 8192;"),
                            HasSubstr("const long long* t_seed")));
  EXPECT_THAT(source_of(std::string(kSizes) + "dropout 0.5, (q_idx + kv_idx) % 2 == 0;"),
              AllOf(HasSubstr("kKeep = true, kRandom = false,"), HasSubstr("bool keep(int b")));
}

// The gradient of a sink needs a value for each row alone.
TEST(NativeBackward, SinksHaveGradients) {
  const NativeProgram made =
      lowered(std::string(kOwnKeys) + "learn t: f32[Hq]; sink t[h] * 2.0;").value();
  EXPECT_THAT(step_of(made).outputs,
              ElementsAre("dq", "dk", "dv", "native.exponents", "native.deltas"));
  EXPECT_GT(made.program.steps.size(), 1U);
  EXPECT_TRUE(plan::steps_of<plan::CudnnStep>(made.program).empty());
  EXPECT_EQ(made.program.tensors.back().name, "d_t");
  const NativeProgram alone =
      lowered(std::string(kSizes) + "learn t: f32[Hq]; sink t[h]; grad t;").value();
  EXPECT_TRUE(plan::steps_of<plan::KernelStep>(alone.program).empty());
}

TEST(NativeBackward, TextOfACausalMask) {
  attn::testing::expect_golden("tests/golden/native/backward.cu",
                               source_of(std::string(kSizes) + "mask q_idx >= kv_idx;"));
}

TEST(NativeBackward, TextOfAScoreThatReadsATensor) {
  attn::testing::expect_golden(
      "tests/golden/native/backward_score.cu",
      source_of("dims B = 1, Hq = 2, Hkv = 2, Sq = 100, Skv = 200, D = 64; dtype f16; "
                "param c: f32; tensor t: f32[Hq]; grad q, k, v; layout bhsd; "
                "score c * tanh(score + t[h] * (kv_idx - q_idx)); mask kv_idx // 3 <= q_idx;"));
}

TEST(NativeBackward, TakesSmallerBlocksWhereKernelsWereRefused) {
  EXPECT_THAT(step_of(*lowered(kSizes)).source, HasSubstr("kBlockRows = 64;"));
  EXPECT_THAT(step_of(*lowered(kSizes, 1)).source, HasSubstr("kBlockRows = 48;"));
  EXPECT_THAT(step_of(*lowered(kSizes, 2)).source, HasSubstr("kBlockRows = 32;"));
  const std::string narrow = "dims B = 1, Hq = 1, Sq = 64, Skv = 64, D = 64;";
  EXPECT_THAT(step_of(*lowered(narrow, 1)).source, HasSubstr("kBlockRows = 32;"));
  const auto none = lowered(kSizes, 3);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::unsupported);
}

TEST(NativeBackward, RefusesWhatItCannotCompute) {
  const std::string dims = "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Skv = 64, ";
  EXPECT_EQ(refusal(dims + "D = 64;"), "");
  EXPECT_EQ(refusal(dims + "D = 60;"), "");
  EXPECT_EQ(refusal(dims + "D = 256;"), "");
  EXPECT_THAT(refusal(dims + "D = 264;"), HasSubstr("(this is 264)"));
  EXPECT_EQ(refusal(dims + "D = 64; lengths q, kv; dropout 0.1;"), "");
  EXPECT_EQ(refusal(dims + "D = 64; layout thd;"), "");
  EXPECT_THAT(refusal(dims + "D = 64; layout paged(page = 16);"), HasSubstr("paged"));
  EXPECT_EQ(refusal(dims + "D = 64; learn t: f32[Hq]; score score * t[h];"), "");
  EXPECT_EQ(refusal(dims + "D = 64; normalize sigmoid;"), "");
}

Error error_of(const std::string& clauses) {
  const Result<NativeProgram> made = lowered(clauses);
  EXPECT_FALSE(made.ok()) << clauses;
  return made.ok() ? Error{} : made.error();
}

TEST(NativeBackward, SaysWhyItDoesNotComputeTheGradientOfATensor) {
  const std::string dims = "dims B = 2, Hq = 4, Sq = 64, Skv = 64, D = 64;\n";
  EXPECT_THAT(refusal(dims + "learn t: f32[Hq]; score score * t[h]; sink t[h];"),
              HasSubstr("the gradient of `t`: the score and the sink both read it"));
  EXPECT_THAT(refusal("dims B = 1, Hq = 2, Sq = 100000, Skv = 100000, D = 64;"
                      "learn t: f32[Sq, Skv]; score score + t[q_idx, kv_idx];"),
              HasSubstr("take 80 GB of memory, and the limit is 69 GB"));
  const Error error = error_of(dims + "learn t: f32[Hq]; score score * t[h]; sink t[h];");
  EXPECT_THAT(error.notes, ElementsAre(HasSubstr("`grad q, k, v`")));
  EXPECT_THAT(error.payload, HasSubstr("\"line\": 2,")) << "where `t` is declared";
}

// `learn t0: f32[Hq]; .. score score + t0[h] + ..;`
std::string learned(int tensors) {
  std::string clauses, score = "score score";
  for (int i = 0; i < tensors; ++i) {
    clauses += fmt::format("learn t{}: f32[Hq];\n", i);
    score += fmt::format(" + t{}[h]", i);
  }
  return clauses + score + ";";
}

// A step has up to 16 outputs and zeroed tensors.
TEST(NativeBackward, HasALimitOfLearnedTensors) {
  const std::string document = "tensor d: i32[Skv]; mask d[q_idx] == d[kv_idx];";
  EXPECT_EQ(refusal(kSizes + learned(8)), "");
  EXPECT_THAT(refusal(kSizes + learned(9)), HasSubstr("up to 8 learned tensors"));
  EXPECT_EQ(refusal(kSizes + learned(5) + document), "");
  EXPECT_THAT(refusal(kSizes + learned(6) + document), HasSubstr("up to 5 learned tensors"));
  EXPECT_EQ(refusal(kSizes + learned(5) + document + "layout thd;"), "");
  EXPECT_THAT(refusal(kSizes + learned(7) + document + "layout thd;"),
              HasSubstr("up to 5 learned tensors that this score reads, not of 7"));
  EXPECT_EQ(refusal(kSizes + learned(7) + "layout thd; deterministic;"), "");
  EXPECT_THAT(refusal(kSizes + learned(8) + "layout thd; deterministic;"),
              HasSubstr("up to 7 learned tensors"));
  const Error error = error_of(kSizes + learned(9));
  EXPECT_THAT(error.payload, HasSubstr("\"line\": 9,")) << "the first that is too many";
  EXPECT_THAT(error.notes, ElementsAre(HasSubstr("`grad`")));
}

TEST(NativeBackward, CountsItsLaunches) {
  const auto launches = [](const std::string& clauses) {
    return lowered(kSizes + clauses).value().work.launches;
  };
  EXPECT_EQ(launches(""), 3);
  EXPECT_EQ(launches("grad k, v;"), 3);
  EXPECT_EQ(launches("layout thd;"), 3);
  EXPECT_EQ(launches(learned(2)), 5);
}

TEST(NativeBackward, BlocksHave128RowsWithHeadDimension64) {
  const auto rows = [](const std::string& clauses) {
    const std::string source =
        source_of("dims B = 1, Hq = 2, Hkv = 2, Sq = 4096, Skv = 4096, " + clauses);
    return source.find("kBlockRows = 128;") != source.npos  ? 128
           : source.find("kBlockRows = 64;") != source.npos ? 64
                                                            : 0;
  };
  EXPECT_EQ(rows("D = 64;"), 128);
  EXPECT_EQ(rows("D = 64; deterministic; mask q_idx >= kv_idx;"), 128);
  EXPECT_EQ(rows("D = 64; mask 0 <= q_idx - kv_idx < 100;"), 128);
  EXPECT_EQ(rows("D = 128;"), 64);
  // An item has two steps at least, of 256 rows where 128 see its keys.
  EXPECT_EQ(rows("D = 64; mask q_idx // 128 == kv_idx // 128;"), 64);
  EXPECT_EQ(rows("D = 64; dropout 0.1;"), 64);
  // A table has no room beside them.
  EXPECT_EQ(rows("D = 64; tensor t: bf16[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx];"), 64);
}

TEST(NativeBackward, BlocksOf128RowsSpillFewRegisters) {
  if (kWatched) GTEST_SKIP() << "kernels of debug builds spill";
  for (const char* clauses : {"", "mask q_idx >= kv_idx;"}) {
    std::string report;
    const std::string sizes = "dims B = 2, Hq = 8, Hkv = 2, Sq = 1000, Skv = 1000, D = 64; ";
    const std::string source = source_of(sizes + clauses);
    ASSERT_THAT(source, HasSubstr("kBlockRows = 128;"));
    const auto image = nvrtc::compile_kernel(source, 90, "", codegen::KernelKind::general, &report);
    ASSERT_TRUE(image.ok()) << image.error().to_text();
    // 64 are allowed (native.cpp).
    EXPECT_THAT(report, Not(::testing::ContainsRegex("(6[5-9]|[7-9][0-9]|[0-9]{3,}) bytes spill")));
  }
}

// The tile that is taken, where nothing spills. (The warps that draw random dropout save two
// registers once a step.)
void expect_no_spills(const std::string& clauses, std::size_t refused = 0) {
  const Result<NativeProgram> made = lowered(clauses, refused);
  ASSERT_TRUE(made.ok()) << clauses << made.error().to_text();
  std::string report;
  const auto image =
      nvrtc::compile_kernel(step_of(*made).source, 90, "", codegen::KernelKind::general, &report);
  ASSERT_TRUE(image.ok()) << clauses << image.error().to_text();
  EXPECT_THAT(report, AllOf(Not(::testing::ContainsRegex("[1-9][0-9]* bytes spill")),
                            Not(HasSubstr("C75"))))
      << clauses;
}

// One that adds its sums, one that takes turns, and one of 8 bits; the others are the night's.
TEST(NativeBackward, KernelsDoNotSpill) {
  if (kWatched) GTEST_SKIP() << "kernels of debug builds spill";
  const std::string sizes = "dims B = 2, Hq = 8, Hkv = 2, Sq = 1000, Skv = 1000, ";
  expect_no_spills(sizes + "D = 128; mask q_idx >= kv_idx;");
  expect_no_spills(sizes + "D = 128; mask q_idx >= kv_idx; deterministic;");
  expect_no_spills(sizes +
                   "D = 128; mask q_idx >= kv_idx; dtype e4m3; quantize per_tensor; "
                   "grad q, k, v;");
}

TEST(NightlyNativeBackward, KernelsDoNotSpill) {
  if (kWatched) GTEST_SKIP() << "kernels of debug builds spill";
  const std::string sizes = "dims B = 2, Hq = 8, Hkv = 2, Sq = 1000, Skv = 1000, ";
  expect_no_spills(std::string(kWithGlobalKeys) + "D = 128; deterministic;");
  expect_no_spills(sizes + "D = 128; mask q_idx >= kv_idx; layout thd;");
  expect_no_spills(sizes + "D = 256; mask q_idx >= kv_idx;");
  const std::string narrow = "dtype e4m3; quantize per_tensor; grad q, k, v; ";
  expect_no_spills(sizes + "D = 128; " + narrow + "deterministic;");
  expect_no_spills(sizes + "Dqk = 192, Dv = 128; mask q_idx >= kv_idx; deterministic;");
  expect_no_spills(sizes + "Dqk = 72, Dv = 136; score 30.0 * tanh(score / 30.0);");
  expect_no_spills(sizes + "D = 128; dtype f16; score score + (q_idx - kv_idx) * 0.01;");
  expect_no_spills(sizes + "D = 128; score 30.0 * tanh(score / 30.0);", 1);
  expect_no_spills(sizes + "D = 128; mask q_idx >= kv_idx; normalize sigmoid;");
  expect_no_spills(sizes +
                   "D = 128; align bottom_right; lengths q, kv; layout thd; "
                   "mask 0 <= q_idx - kv_idx < 100;");
  expect_no_spills(sizes + "D = 256; tensor n: i32[B]; mask kv_idx < n[b] || q_idx >= kv_idx;");
  expect_no_spills(sizes + "D = 64; learn t: f32[Hq]; score score + (kv_idx - q_idx) * t[h];");
  expect_no_spills(sizes + "D = 128; learn t: f32[Hq]; score score * t[h];", 1);
  expect_no_spills(sizes + "D = 128; learn t: f32[Sq, Skv]; score score + t[q_idx, kv_idx];");
  expect_no_spills(sizes + "D = 64; learn t: f32[2000]; score score + t[q_idx - kv_idx + 999];");
  expect_no_spills(sizes + "D = 64; tensor t: f32[Sq]; score score * score * t[q_idx]; grad k;", 1);
}

TEST(NativeBackward, WaitsOfDebugBuildsEnd) {
  const std::string source =
      "#define ATTN_BARRIERS \"keys\"\n" + source_of(std::string(kSizes) + "deterministic;");
  const auto image = nvrtc::compile_kernel(source, 90, "", codegen::KernelKind::general);
  ASSERT_TRUE(image.ok()) << image.error().to_text();
  EXPECT_THAT(*image, AllOf(HasSubstr("waits until %s is %s"), HasSubstr("waits for turn %d")));
}

}  // namespace
}  // namespace attn::engines::backward_tests
