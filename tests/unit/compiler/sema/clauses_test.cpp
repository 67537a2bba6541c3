#include <cmath>

#include "compiler/ir/block_scales.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

using ir::LayoutKind;

TEST(Defaults, OfAnEmptySpec) {
  const ir::Attention attention = good("");
  EXPECT_EQ(attention.name, "f");
  EXPECT_EQ(attention.dtype, DType::bf16);
  EXPECT_EQ(attention.layouts.size(), 4U);
  EXPECT_EQ(attention.layouts.find("q")->second.kind, LayoutKind::bshd);
  EXPECT_EQ(attention.align, ir::Align::top_left);
  EXPECT_TRUE(attention.wants_o);
  EXPECT_FALSE(attention.wants_lse);
  EXPECT_TRUE(attention.masks.empty());
  EXPECT_TRUE(attention.dag[attention.score].is(ir::Op::score_));
  EXPECT_EQ(to_source(attention, attention.scale), "1.0 / sqrt(Dqk)");
}

TEST(Values, MakeDvAndTheLayoutOfV) {
  const ir::Attention latent = good("dims Dqk = 96; layout q: bshd, k: bhsd; values k[0..2 * 32];");
  EXPECT_EQ(latent.dims.get(ir::Dim::Dv), 64);
  EXPECT_TRUE(latent.values_of_keys);
  EXPECT_EQ(latent.layouts.at("v").kind, LayoutKind::bhsd);
  EXPECT_EQ(good("dims Dqk, Dv; values k[0..Dv];").dims.get(ir::Dim::Dv), std::nullopt);
  EXPECT_EQ(good("dims Dqk, Dv; values k[0..Dv];", {{"Dv", "32"}}).dims.get(ir::Dim::Dv), 32);
  EXPECT_EQ(analyze_body("dims D = 96; values k[0..64];").codes, Codes{"E0402"});
  EXPECT_EQ(
      analyze_body("dims Dqk = 96; values k[0..64]; branch x; branch y; combine x + y;").codes,
      (Codes{"E0207", "E0207"}));
}

TEST(Gather, NamesTensorsOfRows) {
  const ir::Attention all = good("tensor a: i32[B, Sq, 8]; gather a;");
  EXPECT_EQ(all.gather->keys, "a");
  EXPECT_EQ(all.gather->counts, "");
  const ir::Attention some =
      good("dims B = 2; tensor a: i32[2, Sq, 8]; tensor n: i32[B, Sq]; gather a, n;");
  EXPECT_EQ(some.gather->counts, "n");
  EXPECT_EQ(analyze_body("dims B = 2; tensor a: i32[3, Sq, 8]; gather a;").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("tensor a: i32[Sq, B, 8]; gather a;").codes, Codes{"E0402"});
}

TEST(ListDefaults, AreAsTheirElements) {
  const ir::Attention attention = good(
      "dims B = 2; tensor _a: i32[3] = [3, 0, B]; tensor _c: f32[2, 2] = [[1, 2.5], [i0, 4]];"
      "tensor _d: bool[1] = [true]; lengths kv = [5, 7];");
  const auto text = [&](std::size_t i) {
    return to_source(attention, *attention.tensors[i].fallback);
  };
  EXPECT_EQ(text(1), "where(i0 < 2, where(i0 < 1, 3, 0), 2)");
  EXPECT_EQ(text(2), "where(i0 < 1, where(i1 < 1, 1.0, 2.5), where(i1 < 1, i0, 4))");
  EXPECT_EQ(text(3), "true");
  EXPECT_EQ(text(0), "where(i0 < 1, 5, 7)");
}

TEST(ListDefaults, OfAnOpenDimensionAreComparedOnceItIsBound) {
  const std::string clauses = "dims B; tensor _a: i32[B] = [1, 2];";
  good(clauses);
  good(clauses, {{"B", "2"}});
  EXPECT_EQ(analyze_body(clauses, {{"B", "3"}}).codes, Codes{"E0503"});
}

TEST(ListDefaults, MayBeLong) {
  std::string elements = "0";
  for (int i = 1; i < 4000; ++i) elements += ", " + std::to_string(i);
  good("tensor _a: i32[4000] = [" + elements + "];");
}

TEST(Scale, IsOneOverRootOfTheHeadDimension) {
  const ir::Attention attention = good("dims Dqk = 192, Dv = 128;");
  EXPECT_DOUBLE_EQ(attention.dag.real_of(attention.scale), 1 / std::sqrt(192.0));
}

TEST(Dtype, IsF16OrBf16OrOf8Bits) {
  EXPECT_EQ(good("dtype f16;").dtype, DType::f16);
  EXPECT_EQ(analyze_body("dtype f32;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("dtype fp8;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("dtype e4m3;").codes, Codes{"E0504"});
  EXPECT_EQ(analyze_body("quantize per_tensor;").codes, Codes{"E0504"});
  EXPECT_EQ(analyze_body("dtype half;").codes, Codes{"E0502"});
}

TEST(Shard, IsOfSequenceHeadsOrBoth) {
  EXPECT_EQ(good("").shard, std::nullopt);
  EXPECT_EQ(good("shard sequence;").shard, ir::Shard::sequence);
  EXPECT_EQ(good("shard heads;").shard, ir::Shard::heads);
  EXPECT_EQ(good("shard both;").shard, ir::Shard::both);
  EXPECT_EQ(analyze_body("shard rows;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("shard heads; shard heads;").codes.size(), 1U);
}

TEST(Quantize, DeclaresTheScalesOfTheForward) {
  const ir::Attention plain = good("dtype e4m3; quantize per_tensor;");
  EXPECT_EQ(plain.dtype, DType::e4m3);
  EXPECT_EQ(plain.quantize->o, DType::e4m3);
  for (const char* name :
       {"descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o"}) {
    const ir::CapturedTensor* scale = plain.find_tensor(name);
    ASSERT_NE(scale, nullptr) << name;
    EXPECT_EQ(scale->dtype, DType::f32);
    EXPECT_EQ(ir::fold_real(plain.dag, *scale->fallback), 1.0);
  }
  EXPECT_EQ(plain.tensors.size(), 6U);
  EXPECT_FALSE(plain.wants_amax_s || plain.wants_amax_o);
}

TEST(Quantize, TypesAndDefaults) {
  const ir::Attention given = good(
      "outputs o, amax_o; quantize per_tensor, o: bf16, do: e5m2, scale_s = 2 * 128; dtype e5m2;");
  EXPECT_EQ(given.dtype_of("q"), DType::e5m2);
  EXPECT_EQ(given.dtype_of("o"), DType::bf16);
  EXPECT_EQ(given.dtype_of("do"), DType::e5m2);
  EXPECT_EQ(given.find_tensor("scale_o"), nullptr);
  EXPECT_EQ(ir::fold_real(given.dag, *given.find_tensor("scale_s")->fallback), 256.0);
  EXPECT_TRUE(given.wants_amax_o && !given.wants_amax_s);
}

TEST(Quantize, ATrainedSpecHasTheScalesOfTheBackward) {
  const ir::Attention all = good("dtype e4m3; quantize per_tensor; grad q;");
  EXPECT_EQ(all.tensors.size(), std::size(ir::kScales));
  EXPECT_EQ(all.gradients, std::vector<std::string>{"q"});
  const ir::Attention half =
      good("dtype e4m3; quantize per_tensor, o: bf16, gradients: bf16; grad q, k;");
  for (const char* missing : {"scale_o", "descale_o", "scale_dq", "scale_dk", "scale_dv"}) {
    EXPECT_EQ(half.find_tensor(missing), nullptr) << missing;
  }
  EXPECT_NE(half.find_tensor("descale_do"), nullptr);
  EXPECT_NE(half.find_tensor("scale_dp"), nullptr);
}

std::vector<std::int64_t> dims_of(const ir::Attention& attention, std::string_view name) {
  std::vector<std::int64_t> dims;
  for (const ir::ExprId extent : attention.find_tensor(name)->extents) {
    dims.push_back(ir::fold_integer(attention.dag, extent, attention.dims).value_or(-1));
  }
  return dims;
}

TEST(Quantize, Mxfp8DeclaresScalesOfBlocks) {
  const ir::Attention plain = good(
      "dims B = 2, Hq = 4, Hkv = 2, Sq = 130, Skv = 70, Dqk = 160, Dv = 96; dtype e4m3; quantize "
      "mxfp8, descale_k = 2 ** -3;");
  EXPECT_TRUE(plain.is_mxfp8());
  EXPECT_EQ(plain.dtype_of("o"), DType::bf16);
  EXPECT_EQ(plain.tensors.size(), 3U);
  for (const ir::CapturedTensor& tensor : plain.tensors) EXPECT_EQ(tensor.dtype, DType::e8m0);
  EXPECT_EQ(dims_of(plain, "descale_q"), (std::vector<std::int64_t>{2, 4, 256, 8}));
  EXPECT_EQ(dims_of(plain, "descale_k"), (std::vector<std::int64_t>{2, 2, 128, 8}));
  EXPECT_EQ(dims_of(plain, "descale_v"), (std::vector<std::int64_t>{2, 2, 4, 128}));
  EXPECT_EQ(ir::fold_real(plain.dag, *plain.find_tensor("descale_k")->fallback), 0.125);
}

TEST(Quantize, ATrainedMxfp8SpecHasCopiesInTheirLayout) {
  const ir::Attention all = good(
      "dims Skv = 70, D = 64; layout q: sbhd, k: bhsd, v: bshd, o: bhsd; dtype e4m3; quantize "
      "mxfp8, "
      "o: f16, do: e5m2; grad q;");
  EXPECT_EQ(all.tensors.size(), std::size(ir::kBlockScales) + std::size(ir::kCopies));
  ir::Attention bound = all;
  for (const auto& [dim, size] : {std::pair(ir::Dim::B, 2), std::pair(ir::Dim::Hq, 6),
                                  std::pair(ir::Dim::Hkv, 3), std::pair(ir::Dim::Sq, 40)}) {
    bound.dims.set(dim, size);
  }
  EXPECT_EQ(dims_of(bound, "q_t"), (std::vector<std::int64_t>{40, 2, 6, 64}));
  EXPECT_EQ(dims_of(bound, "k_t"), (std::vector<std::int64_t>{2, 3, 70, 64}));
  EXPECT_EQ(dims_of(bound, "v_t"), (std::vector<std::int64_t>{2, 70, 3, 64}));
  EXPECT_EQ(dims_of(bound, "do_f16"), (std::vector<std::int64_t>{2, 6, 40, 64}));
  EXPECT_EQ(dims_of(bound, "descale_q_t"), (std::vector<std::int64_t>{2, 6, 4, 128}));
  EXPECT_EQ(dims_of(bound, "descale_do"), (std::vector<std::int64_t>{2, 6, 128, 4}));
  EXPECT_EQ(all.find_tensor("do_t")->dtype, DType::e5m2);
  EXPECT_EQ(all.find_tensor("do_f16")->dtype, DType::f16);
  EXPECT_EQ(analyze_body("dims D = 40; dtype e4m3; quantize mxfp8;").codes, Codes{"E0408"});
  EXPECT_EQ(analyze_body("layout thd; dtype e4m3; quantize mxfp8;").codes, Codes{"E0407"});
}

TEST(Layout, OfAllAndOfEach) {
  EXPECT_EQ(good("layout bhsd;").layouts.find("o")->second.kind, LayoutKind::bhsd);
  const ir::Attention mixed = good(
      "dims B = 2, Hq = 4, Sq = 8, D = 16; layout q: sbhd, k: strides(Sq * Hq * D, D, Hq * D, 1);");
  EXPECT_EQ(mixed.layouts.find("q")->second.kind, LayoutKind::sbhd);
  EXPECT_EQ(mixed.layouts.find("v")->second.kind, LayoutKind::bshd);
  const ir::Layout& k = mixed.layouts.find("k")->second;
  EXPECT_EQ(k.kind, LayoutKind::strided);
  EXPECT_EQ(k.strides, (std::array<std::int64_t, 4>{512, 16, 64, 1}));
}

TEST(Layout, StridesMayExceed32Bits) {
  const ir::Attention attention = good(
      "dims B = 2, Hq = 64, Sq = 1048576, D = 128; layout k: strides(Hq * Sq * D, Sq * D, D, 1);");
  EXPECT_EQ(attention.layouts.find("k")->second.strides[0], 64LL * 1048576 * 128);
}

TEST(Layout, IsChecked) {
  EXPECT_EQ(analyze_body("layout bsdh;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("layout strided;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("layout q: packed_qkv;").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout o: paged(page = 64);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout paged;").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout paged(page = 0);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout paged(page = 64, tables = 3);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout paged(page = 64, tables = 0);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout paged(page = 64, strides = 5);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout paged(page = 64, strides = bound + 1);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout paged(strides = bound);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout paged(page = bound);").codes, Codes{"E0201"});
  EXPECT_EQ(analyze_body("layout thd(strides = free);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout thd(bound);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout thd(page = 4);").codes, Codes{"E0407"});
  EXPECT_EQ(analyze_body("layout bshd(strides = bound);").codes, Codes{"E0405"});
  EXPECT_EQ(analyze_body("layout q: packed_qkv(strides = bound);").codes, Codes{"E0405"});
  EXPECT_EQ(analyze_body("layout strides(1, 2, 3);").codes, Codes{"E0405"});
  EXPECT_EQ(analyze_body("layout strides;").codes, Codes{"E0405"});
  EXPECT_EQ(analyze_body("layout bshd(1, 2, 3, 4);").codes, Codes{"E0405"});
  EXPECT_EQ(analyze_body("layout k: strides(0, 1, 1, 1);").codes, Codes{});
  EXPECT_EQ(analyze_body("layout o: strides(0, 1, 1, 1);").codes, Codes{"E0405"});
  EXPECT_EQ(analyze_body("layout k: strides(-1, 1, 1, 1);").codes, Codes{"E0405"});
  EXPECT_EQ(analyze_body("layout k: strides(1.5, 1, 1, 1);").codes, Codes{"E0405"});
  EXPECT_EQ(analyze_body("layout k: strides(Sq, 1, 1, 1);").codes, Codes{"E0406"});
  EXPECT_EQ(analyze_body("layout k: strides(h, 1, 1, 1);").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("layout k: bshd, k: bhsd;").codes, Codes{"E0202"});
  EXPECT_EQ(analyze_body("layout lse: bshd;").codes, Codes{"E0502"});
}

TEST(Layout, ElementsOfTheOutputDoNotOverlap) {
  const std::string dims = "dims B = 1, Hq = 4, Sq = 8, D = 16; ";
  EXPECT_TRUE(analyze_body(dims + "layout o: strides(1, 16, 64, 1);").attention);  // B = 1: any
  EXPECT_EQ(analyze_body(dims + "layout o: strides(512, 16, 32, 1);").codes, Codes{"E0405"});
  EXPECT_TRUE(analyze_body(dims + "layout q: strides(512, 16, 32, 1);").attention);
}

TEST(Align, BottomRightShiftsTheQueryIndex) {
  const std::string clauses = "align bottom_right; mask q_idx >= kv_idx; mask q_raw > 1;";
  const ir::Attention open = good(clauses);
  EXPECT_EQ(open.align, ir::Align::bottom_right);
  EXPECT_EQ(to_source(open.dag, open.masks[0]), "q_raw + (Skv - Sq) >= kv_idx");
  EXPECT_EQ(to_source(open.dag, open.masks[1]), "q_raw > 1");
  const ir::Attention bound = good("dims Sq = 8, Skv = 20; " + clauses);
  EXPECT_EQ(to_source(bound.dag, bound.masks[0]), "q_raw + 12 >= kv_idx");
  const ir::Attention longer = good("dims Sq = 20, Skv = 8; " + clauses);
  EXPECT_EQ(to_source(longer.dag, longer.masks[0]), "q_raw + -12 >= kv_idx");
  const ir::Attention square = good("dims Sq = 8; " + clauses);
  EXPECT_EQ(to_source(square.dag, square.masks[0]), "q_raw >= kv_idx");
  const ir::Attention half = good("dims Sq = 8, Skv; " + clauses);
  EXPECT_EQ(to_source(half.dag, half.masks[0]), "q_raw + (Skv - 8) >= kv_idx");
}

TEST(Align, ActsWhereverItStands) {
  const ir::Attention attention =
      good("dims Sq = 1, Skv = 9; mask q_idx >= kv_idx; align bottom_right;");
  EXPECT_EQ(to_source(attention.dag, attention.masks[0]), "q_raw + 8 >= kv_idx");
  EXPECT_EQ(analyze_body("align left;").codes, Codes{"E0502"});
}

TEST(Outputs, AreWhatIsListed) {
  const ir::Attention attention = good("outputs lse;");
  EXPECT_FALSE(attention.wants_o);
  EXPECT_TRUE(attention.wants_lse);
  EXPECT_TRUE(good("outputs o, max, sum_exp;").wants_sum_exp);
  EXPECT_EQ(analyze_body("outputs o, x;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("outputs o, o;").codes, Codes{"E0202"});
}

TEST(Clauses, ThatMayStandOnce) {
  for (const char* clause :
       {"dtype bf16;", "layout bshd;", "scale 1;", "outputs o;", "align top_left;", "sink 1;",
        "dropout 0.5;", "lengths kv;", "grad q;", "deterministic;"}) {
    EXPECT_EQ(analyze_body(std::string(clause) + clause).codes, Codes{"E0501"}) << clause;
  }
  EXPECT_TRUE(
      analyze_body("mask true; mask true; score 1; score 2; dims B = 1; dims Sq = 1;").attention);
}

TEST(Tensors, HaveATypeAndASize) {
  const ir::Attention attention = good("tensor t: f16[B, 2 * Sq + 1]; score t[b, 0];");
  ASSERT_EQ(attention.tensors.size(), 1U);
  EXPECT_EQ(attention.tensors[0].dtype, DType::f16);
  EXPECT_EQ(to_source(attention.dag, attention.tensors[0].extents[1]), "2 * Sq + 1");
  EXPECT_EQ(attention.tensors[0].pos.line, 2U);
  EXPECT_EQ(analyze_body("tensor t: f32[0]; score t[b];").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("tensor t: f32[65536 * 65536]; score t[b];").codes, Codes{"E0402"});
  EXPECT_EQ(analyze_body("tensor t: f32[1.5]; score t[b];").codes, Codes{"E0301"});
  EXPECT_EQ(analyze_body("tensor t: float[4]; score t[b];").codes, Codes{"E0502"});
}

TEST(Tensors, MayBeUsedAboveTheirClause) {
  EXPECT_EQ(analyze_body("score score + t[h]; tensor t: f32[Hq];").codes, Codes{});
}

TEST(Params, AreF32OrI32) {
  const ir::Attention attention = good("param c: f32; param n: i32; score c + n;");
  ASSERT_EQ(attention.params.size(), 2U);
  EXPECT_EQ(attention.params[1].dtype, DType::i32);
  EXPECT_EQ(analyze_body("param c: f64; score c;").codes, Codes{"E0502"});
}

TEST(Layout, OfSeveralTensorsTogether) {
  const ir::Attention packed = good("layout packed_qkv;");
  EXPECT_EQ(packed.layouts.find("v")->second.kind, LayoutKind::packed_qkv);
  EXPECT_EQ(packed.layouts.find("o")->second.kind, LayoutKind::bshd);
  const ir::Attention paged = good("layout paged(page = 64, pages = 2 * 8);");
  EXPECT_EQ(paged.layouts.find("q")->second.kind, LayoutKind::bshd);
  EXPECT_EQ(paged.layouts.find("k")->second.page, 64);
  EXPECT_EQ(paged.layouts.find("v")->second.pages, 16);
  EXPECT_EQ(paged.layouts.find("v")->second.tables, 1);
}

TEST(Layout, PagesOfKAndVMayHaveATableEach) {
  const ir::Attention paged = good("layout paged(page = 64, tables = 2);");
  EXPECT_EQ(paged.layouts.find("k")->second.tables, 2);
  EXPECT_EQ(paged.layouts.find("v")->second.tables, 2);
  const std::string text = ir::to_text(paged);
  const auto again = ir::parse(text);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->layouts, paged.layouts);
  EXPECT_EQ(ir::to_text(*again), text);
}

TEST(Layout, RowsMayHaveSeveralTypes) {
  const ir::Attention attention = good(
      "dims Dqk = 576; layout paged(page = 64, rows = fp8_ds_mla, strides = bound); values "
      "k[0..512];");
  EXPECT_EQ(attention.layouts.find("k")->second.rows, RowFormat::fp8_ds_mla);
  EXPECT_EQ(attention.layouts.find("v")->second.rows, RowFormat::fp8_ds_mla);
  EXPECT_FALSE(attention.layouts.find("q")->second.rows);
  const std::string text = ir::to_text(attention);
  EXPECT_THAT(text, ::testing::HasSubstr("k=paged(64,0,fp8_ds_mla,bound)"));
  EXPECT_EQ(ir::parse(text).value().layouts, attention.layouts);
  ir::Attention wrong = attention;
  wrong.layouts["q"].rows = RowFormat::fp8_ds_mla;
  EXPECT_FALSE(ir::verify(wrong).ok());
}

TEST(Layout, StridesMayBeThoseOfTheBoundTensor) {
  const ir::Attention attention = good(
      "layout q: thd(strides = bound), k: paged(page = 64, strides = bound), "
      "v: paged(strides = bound, page = 64, pages = 7, tables = 2), o: thd;");
  EXPECT_TRUE(attention.layouts.find("q")->second.bound_strides);
  EXPECT_TRUE(attention.layouts.find("k")->second.bound_strides);
  EXPECT_TRUE(attention.layouts.find("v")->second.bound_strides);
  EXPECT_FALSE(attention.layouts.find("o")->second.bound_strides);
  EXPECT_TRUE(attention.lengths_q);
  const std::string text = ir::to_text(attention);
  EXPECT_THAT(text, ::testing::HasSubstr("k=paged(64,0,bound) o=thd q=thd(bound) "
                                         "v=paged(64,7,2,bound)"));
  const auto again = ir::parse(text);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->layouts, attention.layouts);
}

TEST(Outputs, WithAndWithoutTheSinkNeedASink) {
  const ir::Attention with = good("sink 0.5; outputs o, max_with_sink, sum_exp_with_sink;");
  EXPECT_TRUE(with.wants_max_with_sink && with.wants_sum_exp_with_sink);
  EXPECT_FALSE(with.wants_max || with.wants_sum_exp);
  EXPECT_EQ(ir::to_text(*ir::parse(ir::to_text(with))), ir::to_text(with));
  EXPECT_TRUE(good("outputs max_with_sink; sink 0.5;").wants_max_with_sink);
  const ir::Attention without = good("sink 0.5; outputs o, lse_without_sink;");
  EXPECT_TRUE(without.wants_lse_without_sink && without.wants_more_than_lse());
  EXPECT_FALSE(without.wants_lse || without.wants_max_or_sum());
  EXPECT_EQ(ir::to_text(*ir::parse(ir::to_text(without))), ir::to_text(without));
  EXPECT_EQ(analyze_body("outputs o, lse_without_sink;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("outputs o, max_with_sink;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("sink 0.5; outputs max_with_sink, max_with_sink;").codes, Codes{"E0202"});
}

TEST(Lengths, AreTensorsOfTheBatch) {
  const ir::Attention kv = good("lengths kv = 7 + i0;");
  EXPECT_FALSE(kv.lengths_q);
  EXPECT_TRUE(kv.lengths_kv);
  ASSERT_EQ(kv.tensors.size(), 1U);
  EXPECT_EQ(kv.tensors[0].name, "lengths_kv");
  EXPECT_EQ(to_source(kv.dag, *kv.tensors[0].fallback), "7 + i0");
  EXPECT_TRUE(good("layout thd;").lengths_q);
  EXPECT_TRUE(good("layout thd;").lengths_kv);
  EXPECT_TRUE(good("layout q: thd, o: thd;").lengths_q);
  EXPECT_FALSE(good("layout q: thd, o: thd;").lengths_kv);
  EXPECT_TRUE(good("layout k: thd, v: thd;").lengths_kv);
  EXPECT_EQ(good("layout thd; lengths q, kv;").tensors.size(), 2U);
  EXPECT_EQ(analyze_body("lengths k;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("lengths q, q;").codes, Codes{"E0202"});
  EXPECT_EQ(analyze_body("lengths q = 0.5;").codes, Codes{"E0301"});
  EXPECT_EQ(analyze_body("mask kv_idx < lengths_kv[b];").codes, Codes{"E0201"});
}

TEST(Lengths, MoveTheBottomRight) {
  const auto mask = [](const std::string& lengths) {
    const ir::Attention attention =
        good("dims Sq = 8, Skv = 32; align bottom_right; mask q_idx >= kv_idx;" + lengths);
    return to_source(attention.dag, attention.masks[0]);
  };
  EXPECT_EQ(mask("lengths kv;"), "q_raw + (lengths_kv[b] - 8) >= kv_idx");
  EXPECT_EQ(mask("lengths q, kv;"), "q_raw + (lengths_kv[b] - lengths_q[b]) >= kv_idx");
}

TEST(Sink, IsOneNumberForEachHead) {
  const ir::Attention attention = good("learn s: f32[Hq]; sink 2 * s[h];");
  EXPECT_EQ(to_source(attention.dag, *attention.sink), "2.0 * s[h]");
  EXPECT_TRUE(attention.tensors[0].learned);
  EXPECT_EQ(analyze_body("sink q_idx;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("sink true;").codes, Codes{"E0301"});
}

TEST(Dropout, HasAConstantProbability) {
  const ir::Attention random = good("dropout 0.25;");
  EXPECT_EQ(random.dropout->probability, 0.25);
  EXPECT_FALSE(random.dropout->keep);
  const ir::Attention given = good("tensor keep: bool[Sq, Skv]; dropout 0, keep[q_idx, kv_idx];");
  EXPECT_EQ(to_source(given.dag, *given.dropout->keep), "keep[q_raw, kv_idx]");
  EXPECT_EQ(analyze_body("dropout 1;").codes, Codes{"E0503"});
  EXPECT_EQ(analyze_body("dropout -0.1;").codes, Codes{"E0503"});
  EXPECT_EQ(analyze_body("dropout B;").codes, Codes{"E0503"});
  EXPECT_EQ(analyze_body("param p: f32; dropout p;").codes, Codes{"E0201"});
}

TEST(Gradients, AreOfInputsAndLearnedTensors) {
  const ir::Attention attention =
      good("learn t: f32[Hq]; score score + t[h]; grad q, v, t; deterministic;");
  EXPECT_EQ(attention.gradients, (std::vector<std::string>{"q", "v", "t"}));
  EXPECT_TRUE(attention.deterministic);
  EXPECT_FALSE(attention.reads_d_lse);
  const ir::Attention through = good("grad q, lse, v;");
  EXPECT_EQ(through.gradients, (std::vector<std::string>{"q", "v"}));
  EXPECT_TRUE(through.reads_d_lse);
  for (const char* grad : {"grad o;", "grad q, max;", "grad lse;"})
    EXPECT_EQ(analyze_body(grad).codes, Codes{"E0502"}) << grad;
  EXPECT_EQ(analyze_body("grad q, lse, lse;").codes, Codes{"E0202"});
  EXPECT_EQ(analyze_body("grad q, q;").codes, Codes{"E0202"});
  EXPECT_EQ(analyze_body("learn t: i32[Hq]; score score + t[h];").codes, Codes{"E0502"});
}

TEST(Tensors, DeclareFactsAndDefaults) {
  const ir::Attention attention =
      good("tensor t: i32[B, Sq] monotone = i1 // 4; mask t[b, q_idx] > 0;");
  EXPECT_TRUE(attention.tensors[0].monotone);
  EXPECT_EQ(to_source(attention.dag, *attention.tensors[0].fallback), "i1 // 4");
  EXPECT_EQ(analyze_body("tensor t: i32[B] sorted; mask t[b] > 0;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("tensor t: i32[B] = i1; mask t[b] > 0;").codes, Codes{"E0201"});
  EXPECT_EQ(analyze_body("tensor t: i32[B] = i0 / 2; mask t[b] > 0;").codes, Codes{"E0301"});
  EXPECT_EQ(analyze_body("tensor t: f32[B] = i0; score t[b];").codes, Codes{});
}

TEST(Tensors, DeclareRuns) {
  const ir::Attention attention = good(
      "tensor t: i32[B, Sq] monotone runs(Sq // 16, 2 * 8); tensor u: i32[Sq] runs(3);"
      "mask t[b, q_idx] > u[q_idx];");
  const ir::CapturedTensor &t = attention.tensors[0], &u = attention.tensors[1];
  ir::Dims dims;
  dims.set(ir::Dim::Sq, 80);
  EXPECT_EQ(ir::fold_integer(attention.dag, *t.runs, dims), 5);
  EXPECT_EQ(ir::fold_integer(attention.dag, *t.longest_run, dims), 16);
  EXPECT_TRUE(u.runs && !u.longest_run && !u.monotone);
  const auto codes = [](const std::string& fact) {
    return analyze_body("tensor t: i32[B] " + fact + "; mask t[b] > 0;").codes;
  };
  EXPECT_EQ(codes("runs"), Codes{"E0502"});
  EXPECT_EQ(codes("runs(1, 2, 3)"), Codes{"E0502"});
  EXPECT_EQ(codes("monotone(2)"), Codes{"E0502"});
  EXPECT_EQ(codes("runs(0)"), Codes{"E0402"});
  EXPECT_EQ(codes("runs(4, -1)"), Codes{"E0402"});
  EXPECT_EQ(codes("runs(1.5)"), Codes{"E0301"});
  EXPECT_EQ(codes("runs(b)"), Codes{"E0207"});
}

TEST(Sets, HaveOneVariantForEachCombination) {
  const auto count = [](const std::string& dims, const Bindings& bindings) {
    const support::Source source("x.attn", "attention f(n = 3) { dims " + dims + "; }");
    diag::Sink sink(source);
    return variants(*ast::parse(source, sink), bindings);
  };
  EXPECT_EQ(count("B = 2", {}).size(), 1U);
  const auto all = count("B = {1, n}, Sq = {16, 32, 64}, D = 64", {{"n", "5"}});
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[5], (Bindings{{"B", "5"}, {"Sq", "64"}, {"n", "5"}}));
  EXPECT_EQ(count("B = {1, 2}", {{"B", "7"}}).size(), 1U);
  EXPECT_EQ(good("dims B = {4, 2};").dims.get(ir::Dim::B), 4);
}

TEST(Normalize, IsSoftmaxOrSigmoid) {
  EXPECT_EQ(good("").normalize, ir::Normalize::softmax);
  EXPECT_EQ(good("normalize softmax;").normalize, ir::Normalize::softmax);
  EXPECT_EQ(good("normalize sigmoid;").normalize, ir::Normalize::sigmoid);
  EXPECT_EQ(good("normalize sigmoid;").normalize_pos.column, 11U);
  EXPECT_EQ(analyze_body("normalize none;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("normalize sigmoid; normalize sigmoid;").codes, Codes{"E0501"});
}

// The text of the epilogue.
std::string epilogue(const std::string& clauses) {
  const ir::Attention attention = good(clauses);
  return attention.epilogue ? ir::to_source(attention, *attention.epilogue) : "none";
}

TEST(Epilogue, ActsInOrderOnWhatOIs) {
  EXPECT_EQ(epilogue(""), "none");
  EXPECT_EQ(epilogue("epilogue o + d_idx;"), "o + d_idx");
  EXPECT_EQ(epilogue("gate 2 + h;"), "o * (2 + h)");
  EXPECT_EQ(epilogue("epilogue o + 1; score score * 2; gate tanh(o);"),
            "(o + 1.0) * tanh(o + 1.0)");
  EXPECT_EQ(epilogue("let twice = 2 * o; fn f(x) = x + q_idx; epilogue f(twice);"),
            "2.0 * o + q_idx");
  EXPECT_EQ(good("epilogue o; outputs o_inner;").wants_o_inner, true);
}

TEST(Epilogue, HasNoScoresAndNoKeysAndOthersHaveNoResult) {
  EXPECT_EQ(analyze_body("epilogue o * score;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("gate kv_idx;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("score score + o;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("mask d_idx < 2;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("let x = o; sink x;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("outputs o_inner;").codes, Codes{"E0502"});
  EXPECT_EQ(analyze_body("epilogue o > 1;").codes, Codes{"E0301"});
}

TEST(Normalize, SigmoidHasNoSinkAndNoStatistics) {
  EXPECT_EQ(analyze_body("normalize sigmoid; sink 0.5;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("outputs lse, o, max; normalize sigmoid;").codes,
            (Codes{"E0207", "E0207"}));
  EXPECT_EQ(analyze_body("sink 0.5; outputs o, lse; normalize softmax;").codes, Codes{});
}

}  // namespace
}  // namespace attn::sema
