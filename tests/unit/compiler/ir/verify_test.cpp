#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "compiler/ir/attention.h"
#include "compiler/ir/block_scales.h"
#include "compiler/ir/cache_scales.h"
#include "tests/unit/compiler/ir/sample.h"

namespace attn::ir {
namespace {

// The sample with one thing changed, and what verify says of it.
std::string complaint(const std::function<void(Attention&)>& change) {
  Result<Attention> parsed = parse(kSample);
  if (!parsed.ok()) return parsed.error().message;
  change(*parsed);
  const Status status = verify(*parsed);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ErrorCode::internal);
  return status.error().message.substr(std::string_view("invalid IR: ").size());
}

TEST(Verify, AcceptsTheSample) {
  EXPECT_EQ(complaint([](Attention&) {}), "");
}

TEST(Verify, DimsAndLayouts) {
  EXPECT_EQ(complaint([](Attention& a) { a.dims.set(Dim::Sq, 0); }), "Sq is not positive");
  EXPECT_EQ(complaint([](Attention& a) { a.dims.set(Dim::Hkv, 3); }),
            "Hq is not a multiple of Hkv");
  EXPECT_EQ(complaint([](Attention& a) { a.dtype = DType::f32; }), "dtype f32 of q");
  EXPECT_EQ(complaint([](Attention& a) { a.layouts.erase("k"); }), "no layout of k");
  EXPECT_EQ(complaint([](Attention& a) { a.layouts["x"] = {}; }), "layout of an unknown tensor");
  EXPECT_EQ(complaint([](Attention& a) { a.layouts["v"].strides[0] = 0; }), "");
  EXPECT_EQ(complaint([](Attention& a) { a.layouts["v"].strides[0] = -1; }),
            "a stride of v is below 0");
}

TEST(Verify, Names) {
  EXPECT_EQ(complaint([](Attention& a) { a.tensors[0].name = std::string("q"); }),
            "q is declared twice");
  EXPECT_EQ(complaint([](Attention& a) { a.params[0].name = std::string("keep"); }),
            "keep is declared twice");
  EXPECT_EQ(complaint([](Attention& a) { a.params[0].dtype = DType::bf16; }),
            "param cap: dtype bf16");
  EXPECT_EQ(complaint([](Attention& a) { a.tensors[0].name = std::string("ids"); }),
            "doc is not a tensor");
  EXPECT_EQ(complaint([](Attention& a) { a.params[0].name = std::string("c"); }),
            "cap is not a param");
  EXPECT_EQ(complaint([](Attention& a) { a.tensors[0].dtype = DType::f32; }), "type of tensor doc");
  EXPECT_EQ(complaint([](Attention& a) { a.tensors[0].extents.pop_back(); }), "rank of tensor doc");
}

TEST(Verify, Sums) {
  const auto summed = [](const std::function<void(Attention&, KeySum&)>& change) {
    return complaint([&change](Attention& a) {
      a.sums.push_back({{"c", DType::f32, {a.dag.integer(129)}, {}}, a.dag.real(0.5)});
      const ExprId index[] = {a.dag.leaf(Op::column_)};
      a.score = a.dag.add_symbol(Op::load_, "c", Type::real, index);
      change(a, a.sums[0]);
    });
  };
  EXPECT_EQ(summed([](Attention&, KeySum&) {}), "");
  EXPECT_EQ(summed([](Attention& a, KeySum& sum) { sum.value = a.dag.integer(1); }),
            "sum c is not of type real");
  EXPECT_EQ(summed([](Attention& a, KeySum& sum) { sum.value = a.dag.leaf(Op::score_); }),
            "score in the sum c");
  EXPECT_EQ(summed([](Attention& a, KeySum& sum) { sum.value = a.score; }),
            "a sum along keys in the sum c");
  const auto index = [](Attention& a, Op op) { return a.dag.add(Op::to_real_, {a.dag.leaf(op)}); };
  EXPECT_EQ(summed([&](Attention& a, KeySum& sum) { sum.value = index(a, Op::row_); }),
            "row in the sum c");
  EXPECT_EQ(summed([&](Attention& a, KeySum& sum) { sum.value = index(a, Op::head_); }),
            "head in the sum c");
  EXPECT_EQ(summed([](Attention&, KeySum& sum) { sum.of_head = true; }), "type of the sum c");
  EXPECT_EQ(summed([](Attention&, KeySum& sum) { sum.tensor.dtype = DType::bf16; }),
            "type of the sum c");
  EXPECT_EQ(summed([](Attention&, KeySum& sum) { sum.tensor.name = "doc"; }),
            "doc is declared twice");
  EXPECT_EQ(summed([](Attention& a, KeySum&) {
              a.masks.push_back(a.dag.add(Op::gt_, {a.score, a.dag.real(0)}));
            }),
            "a sum along keys in the mask");
}

TEST(Verify, Roots) {
  EXPECT_EQ(complaint([](Attention& a) { a.scale = 999; }), "root %999 does not exist");
  EXPECT_EQ(complaint([](Attention& a) { a.scale = a.dag.leaf(Op::score_); }),
            "score in the scale");
  EXPECT_EQ(complaint([](Attention& a) { a.scale = a.dag.leaf(Op::row_); }),
            "scale is not of type real");
  EXPECT_EQ(complaint([](Attention& a) { a.masks[0] = a.scale; }), "mask is not of type bool");
  EXPECT_EQ(complaint([](Attention& a) {
              a.masks[0] = a.dag.add(Op::lt_, {a.score, a.scale});
            }),
            "score in the mask");
  EXPECT_EQ(complaint([](Attention& a) { a.tensors[1].extents[0] = a.dag.leaf(Op::row_); }),
            "row in the extent of keep");
  EXPECT_EQ(complaint([](Attention& a) { a.tensors[1].extents[0] = a.dag.integer(0); }),
            "an extent of keep is not positive");
}

TEST(Verify, SigmoidHasNoStatisticsAndNoSink) {
  const auto sigmoid = [](void (*change)(Attention&)) {
    return complaint([&](Attention& a) {
      a.normalize = Normalize::sigmoid;
      a.wants_lse = false;
      change(a);
    });
  };
  EXPECT_EQ(sigmoid([](Attention&) {}), "");
  const char* const kStatistic = "a statistic of softmax without softmax";
  EXPECT_EQ(sigmoid([](Attention& a) { a.wants_lse = true; }), kStatistic);
  EXPECT_EQ(sigmoid([](Attention& a) { a.wants_sum_exp = true; }), kStatistic);
  EXPECT_EQ(sigmoid([](Attention& a) { a.sink = a.scale; }), "a sink without softmax");
}

TEST(Verify, EpiloguesReadElementsOfTheResultAndNoKeys) {
  const auto epilogue = [](ExprId (*make)(Dag&)) {
    return complaint([&](Attention& a) { a.epilogue = make(a.dag); });
  };
  EXPECT_EQ(epilogue([](Dag& dag) { return dag.leaf(Op::output_); }), "");
  EXPECT_EQ(epilogue([](Dag& dag) { return dag.leaf(Op::score_); }), "score in the epilogue");
  EXPECT_EQ(epilogue([](Dag& dag) { return dag.leaf(Op::depth_); }),
            "epilogue is not of type real");
  EXPECT_EQ(epilogue([](Dag& dag) { return dag.add(Op::to_real_, {dag.leaf(Op::column_)}); }),
            "column in the epilogue");
  EXPECT_EQ(complaint([](Attention& a) { a.score = a.dag.leaf(Op::output_); }),
            "output in the score");
  EXPECT_EQ(complaint([](Attention& a) { a.wants_o_inner = true; }), "o_inner without an epilogue");
}

TEST(Verify, QuotientsReadTermsAloneAndHaveNoStatisticButLse) {
  const auto quotient = [](void (*change)(Attention&)) {
    return complaint([&](Attention& a) {
      const ExprId term = a.dag.leaf(Op::score_);
      a.normalize = Normalize::quotient;
      a.quotient = Quotient{term, a.dag.add(Op::add_, {term, a.dag.leaf(Op::unit_)}), true};
      change(a);
    });
  };
  EXPECT_EQ(quotient([](Attention&) {}), "");
  EXPECT_EQ(quotient([](Attention& a) { a.quotient->exponential = false; }),
            "unit in the denominator");
  EXPECT_EQ(quotient([](Attention& a) { a.quotient->f = a.dag.boolean(true); }),
            "numerator is not of type real");
  EXPECT_EQ(quotient([](Attention& a) { a.score = a.dag.leaf(Op::unit_); }), "unit in the score");
  EXPECT_EQ(quotient([](Attention& a) { a.quotient.reset(); }), "a quotient's parts");
  EXPECT_EQ(quotient([](Attention& a) { a.normalize = Normalize::softmax; }), "a quotient's parts");
  EXPECT_EQ(quotient([](Attention& a) { a.wants_max = true; }),
            "a statistic of softmax without softmax");
  EXPECT_EQ(quotient([](Attention& a) { a.sink = a.scale; }), "a sink without softmax");
}

void quantize(Attention& a) {
  a.dtype = DType::e4m3;
  a.quantize.emplace();
  for (const Scale& scale : kScales) {
    if (a.has(scale)) {
      a.tensors.push_back({std::string(scale.name), DType::f32, {a.dag.integer(1)}, {}});
    }
  }
}

TEST(Verify, EightBitsHaveScalesAndOthersHaveNone) {
  const auto quantized = [](void (*change)(Attention&)) {
    return complaint([&](Attention& a) {
      quantize(a);
      change(a);
    });
  };
  EXPECT_EQ(quantized([](Attention& a) { a.wants_amax_o = true; }), "");
  EXPECT_EQ(quantized([](Attention& a) { a.dtype = DType::bf16; }), "bf16 with quantize");
  EXPECT_EQ(quantized([](Attention& a) { a.quantize.reset(); }), "e4m3 without quantize");
  EXPECT_EQ(quantized([](Attention& a) { a.tensors.pop_back(); }), "scale_o is not f32[1]");
  EXPECT_EQ(quantized([](Attention& a) { a.quantize->o = DType::f32; }), "dtype f32 of o");
  EXPECT_EQ(quantized([](Attention& a) { a.quantize->d_o = DType::f64; }), "dtype f64 of do");
  EXPECT_EQ(quantized([](Attention& a) {
              a.normalize = Normalize::sigmoid;
              a.wants_lse = false;
            }),
            "quantize without softmax");
  EXPECT_EQ(complaint([](Attention& a) { a.wants_amax_s = true; }), "amax without quantize");
}

TEST(Verify, CachesHaveTypesOfEightBitsAndScales) {
  const auto cached = [](void (*change)(Attention&)) {
    return complaint([&](Attention& a) {
      a.gradients.clear();
      a.reads_d_lse = false;
      a.cache = Cache{DType::e4m3, DType::i8, CacheScale::head, {}};
      for (const std::string_view name : {kKeyScale, kValueScale})
        a.tensors.push_back({std::string(name), DType::f32, extents_of_scales(a.cache->by, a), {}});
      change(a);
    });
  };
  EXPECT_EQ(cached([](Attention&) {}), "");
  EXPECT_EQ(cached([](Attention& a) { a.cache->k = DType::u8; }), "types of a cache");
  EXPECT_EQ(cached([](Attention& a) { a.cache->by = CacheScale::token; }),
            "k_scale is not f32 of rank 3");
  EXPECT_EQ(cached([](Attention& a) { a.tensors.pop_back(); }), "v_scale is not f32 of rank 1");
  EXPECT_EQ(cached([](Attention& a) { a.gradients = {"q"}; }),
            "a cache beside 8-bit queries, a prologue of k, branches or gradients");
}

TEST(Verify, ScalesOfBlocksHaveTheirTypeAndRank) {
  const auto blocks = [](void (*change)(Attention&)) {
    return complaint([&](Attention& a) {
      a.dtype = DType::e4m3;
      a.quantize.emplace();
      a.quantize->by = Scaling::mxfp8;
      a.quantize->o = a.quantize->gradients = DType::bf16;
      const std::vector<ExprId> extents(4, a.dag.integer(128));
      for (const BlockScale& scale : kBlockScales) {
        a.tensors.push_back({std::string(scale.name), DType::e8m0, extents, {}});
      }
      change(a);
    });
  };
  EXPECT_EQ(blocks([](Attention&) {}), "");
  EXPECT_EQ(blocks([](Attention& a) { a.gradients = {"q"}; }), "q_t is not e4m3 of rank 4");
  EXPECT_EQ(blocks([](Attention& a) { a.quantize->o = DType::e4m3; }), "8 bits of o");
  EXPECT_EQ(blocks([](Attention& a) { a.wants_amax_s = true; }), "amax_s with mxfp8");
  EXPECT_EQ(blocks([](Attention& a) {
              std::ranges::find(a.tensors, "descale_v", &CapturedTensor::name)->dtype = DType::u8;
            }),
            "descale_v is not e8m0 of rank 4");
  EXPECT_EQ(blocks([](Attention& a) {
              std::ranges::find(a.tensors, "descale_q", &CapturedTensor::name)->extents.pop_back();
            }),
            "descale_q is not e8m0 of rank 4");
}

TEST(Verify, Nodes) {
  EXPECT_EQ(complaint([](Attention& a) { a.tensors[1].extents[0] = a.dag.dim("D"); }),
            "D is not a dimension");
  EXPECT_EQ(complaint([](Attention& a) { a.tensors[1].extents[0] = a.dag.integer(1ll << 40); }),
            "1099511627776 does not fit in 32 bits");
}

}  // namespace
}  // namespace attn::ir
