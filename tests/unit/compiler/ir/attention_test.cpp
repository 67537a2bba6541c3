#include "compiler/ir/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "tests/unit/compiler/ir/sample.h"

namespace attn::ir {
namespace {

using ::testing::ElementsAre;

TEST(Names, ReadBack) {
  for (Dim dim : kDims) EXPECT_EQ(parse_dim(to_string(dim)), dim);
  EXPECT_FALSE(parse_dim("D"));
  for (LayoutKind kind :
       {LayoutKind::bshd, LayoutKind::bhsd, LayoutKind::sbhd, LayoutKind::strided, LayoutKind::thd,
        LayoutKind::paged, LayoutKind::packed_qkv, LayoutKind::packed_kv}) {
    EXPECT_EQ(parse_layout_kind(to_string(kind)), kind);
  }
  EXPECT_FALSE(parse_layout_kind("hsd"));
}

TEST(Dims, AreBoundWhenAllAre) {
  Dims dims;
  EXPECT_FALSE(dims.bound());
  for (Dim dim : kDims) dims.set(dim, 8);
  EXPECT_TRUE(dims.bound());
  dims.set(Dim::Sq, std::nullopt);
  EXPECT_FALSE(dims.bound());
}

TEST(Layout, Strides) {
  const std::array<std::int64_t, 4> dims = {2, 3, 5, 7};  // B H S D
  EXPECT_THAT(strides_of({LayoutKind::bshd, {}}, dims), ElementsAre(105, 7, 21, 1));
  EXPECT_THAT(strides_of({LayoutKind::bhsd, {}}, dims), ElementsAre(105, 35, 7, 1));
  EXPECT_THAT(strides_of({LayoutKind::sbhd, {}}, dims), ElementsAre(21, 7, 42, 1));
  EXPECT_THAT(strides_of({LayoutKind::strided, {9, 8, 7, 6}}, dims), ElementsAre(9, 8, 7, 6));
}

TEST(Attention, FindsAndLists) {
  const Result<Attention> parsed = parse(kSample);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->find_tensor("keep")->dtype, DType::boolean);
  EXPECT_EQ(parsed->find_tensor("cap"), nullptr);
  EXPECT_EQ(parsed->find_param("cap")->name, "cap");
  EXPECT_THAT(parsed->roots(), ElementsAre(7, 13, 17, 18, 0, 1, 1));
}

TEST(Attention, SourceNamesTheRowByAlignment) {
  Result<Attention> parsed = parse(kSample);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(to_source(*parsed, parsed->score), "where(q_raw >= kv_idx, tanh(score / cap), -inf)");
  parsed->align = Align::top_left;
  EXPECT_EQ(to_source(*parsed, parsed->score), "where(q_idx >= kv_idx, tanh(score / cap), -inf)");
  EXPECT_EQ(to_source(*parsed, parsed->masks[0]), "h == doc[b, kv_idx] || keep[kv_idx]");
}

TEST(Equality, IsOfWhatIsReachedWhereverItIsWritten) {
  const Attention sample = parse(kSample).value();
  Attention other = sample;
  other.dag.real(7.5);  // nothing reaches it
  other.masks[0] = other.dag.add(Op::or_, {15, 16}, {9, 9});
  EXPECT_TRUE(is_same(sample, other));
  EXPECT_EQ(AttentionHash()(compact(sample)), AttentionHash()(compact(other)));
  EXPECT_EQ(to_text(compact(other)), to_text(other));
  EXPECT_LT(compact(other).dag.size(), other.dag.size());
}

// Each would be another attention.
TEST(Equality, SeesEveryDifference) {
  const Attention sample = parse(kSample).value();
  const std::vector<std::function<void(Attention&)>> changes = {
      [](Attention& a) { a.name += "x"; },
      [](Attention& a) { a.dims.set(Dim::Sq, 7); },
      [](Attention& a) { a.dtype = DType::f16; },
      [](Attention& a) { a.quantize = Quantize{}; },
      [](Attention& a) { a.cache = Cache{}; },
      [](Attention& a) { a.layouts["v"].strides[0] += 1; },
      [](Attention& a) {
        a.layouts["k"] = {LayoutKind::paged, {}, 16, 8};
      },
      [](Attention& a) { a.layouts["k"].bound_strides = true; },
      [](Attention& a) { a.align = Align::top_left; },
      [](Attention& a) { a.tensors[0].monotone = true; },
      [](Attention& a) { a.tensors[0].runs = a.tensors[0].extents[0]; },
      [](Attention& a) { a.tensors.pop_back(); },
      [](Attention& a) { a.tensors[0].computed = true; },
      [](Attention& a) {
        a.sums.push_back({a.tensors[0], a.score});
      },
      [](Attention& a) { a.prologue_q = Prologue{a.score}; },
      [](Attention& a) { a.prologue_k = Prologue{a.score}; },
      [](Attention& a) { a.values_of_keys = true; },
      [](Attention& a) { a.gather = Gather{"doc"}; },
      [](Attention& a) { a.params[0].dtype = DType::i32; },
      [](Attention& a) { a.scale = a.dag.real(0.125); },
      [](Attention& a) { a.score = 8; },
      [](Attention& a) { std::swap(a.masks[0], a.masks[1]); },
      [](Attention& a) { a.sink = 7; },
      [](Attention& a) {
        a.dropout = Dropout{0.5, {}, {}};
      },
      [](Attention& a) { a.normalize = Normalize::sigmoid; },
      [](Attention& a) { a.normalize = Normalize::linear; },
      [](Attention& a) {
        a.quotient = Quotient{a.score, a.score, true};
      },
      [](Attention& a) { a.epilogue = a.score; },
      [](Attention& a) {
        const Attention copy = a;
        a.branches.push_back({copy, copy.tensors[0], {}});
      },
      [](Attention& a) { a.branch = "x"; },
      [](Attention& a) { a.wants_branches = true; },
      [](Attention& a) { a.wants_o_inner = true; },
      [](Attention& a) { a.lengths_q = true; },
      [](Attention& a) { a.wants_max = true; },
      [](Attention& a) { a.gradients = {"q"}; },
      [](Attention& a) { a.reads_d_lse = true; },
      [](Attention& a) { a.deterministic = true; },
      [](Attention& a) { a.partial = true; },
      [](Attention& a) { a.shard = Shard::heads; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Attention other = sample;
    changes[i](other);
    EXPECT_FALSE(is_same(sample, other)) << i;
  }
}

// The text does not tell these apart.
TEST(Equality, SeesStridesOfPages) {
  Attention one = parse(kSample).value();
  one.layouts["k"] = {LayoutKind::paged, {4096, 1024, 64, 1}, 16, 8};
  Attention other = one;
  other.layouts["k"].strides[0] = 8192;
  EXPECT_EQ(to_text(one), to_text(other));
  EXPECT_FALSE(is_same(one, other));
}

TEST(Equality, IsOfBitsOfReals) {
  Attention zero = parse(kSample).value(), negative = zero, nan = zero;
  zero.scale = zero.dag.real(0.0);
  negative.scale = negative.dag.real(-0.0);
  nan.scale = nan.dag.real(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(is_same(zero, negative));
  EXPECT_TRUE(is_same(nan, nan));
}

TEST(ValueType, FollowsTheDtype) {
  EXPECT_EQ(value_type(DType::boolean), Type::boolean);
  EXPECT_EQ(value_type(DType::i64), Type::wide);
  EXPECT_EQ(value_type(DType::u8), Type::integer);
  EXPECT_EQ(value_type(DType::bf16), Type::real);
}

TEST(Dropout, RandomNumbersRoundTheProbability) {
  Dropout dropout;
  dropout.probability = 0.1;
  EXPECT_EQ(dropout.dropped(), 3277);
  EXPECT_EQ(dropout.exact_probability(), 3277.0 / 32768);
  dropout.probability = 0;
  EXPECT_EQ(dropout.dropped(), 0);
  dropout.probability = 0.999999;
  EXPECT_EQ(dropout.dropped(), 32767) << "something is kept";
  dropout.keep = ExprId{0};
  EXPECT_EQ(dropout.exact_probability(), 0.999999);
}

}  // namespace
}  // namespace attn::ir
