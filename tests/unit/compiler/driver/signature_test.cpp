// Signatures of specs: what differs in one thing has another, what means the same has the same.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "compiler/driver/driver.h"
#include "runtime/targets/targets.h"

namespace attn::driver {
namespace {

// Clauses by name, so that a test can replace one.
using Clauses = std::map<std::string, std::string>;

Clauses base() {
  return {{"B", "2"},
          {"Hq", "4"},
          {"Hkv", "2"},
          {"Sq", "128"},
          {"Skv", "256"},
          {"Dqk", "64"},
          {"Dv", "64"},
          {"dtype", "dtype f16;"},
          {"layout", "layout q: bshd, k: bshd, v: bshd, o: bshd;"},
          {"align", "align top_left;"},
          {"tensor", "tensor t: f32[Skv];"},
          {"param", "param p: f32;"},
          {"scale", "scale 0.125;"},
          {"score", "score p * score + t[kv_idx];"},
          {"mask", "mask q_idx >= kv_idx;"},
          {"outputs", "outputs o;"},
          {"more", ""}};
}

std::string text_of(const Clauses& clauses) {
  std::string text = "attention x {\n  dims ";
  for (const char* dim : {"B", "Hq", "Hkv", "Sq", "Skv", "Dqk", "Dv"}) {
    text += (dim[0] == 'B' ? "" : ", ") + std::string(dim) + " = " + clauses.at(dim);
  }
  text += ";\n";
  for (const char* clause : {"dtype", "layout", "align", "tensor", "param", "scale", "score",
                             "mask", "outputs", "more"}) {
    text += "  " + clauses.at(clause) + "\n";
  }
  return text + "}\n";
}

std::string signature(const std::string& text, plan::Direction direction = plan::Direction::forward,
                      std::string_view lowering = "cudnn") {
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  const auto attention = front_end(source, {}, sink);
  EXPECT_TRUE(attention) << diag::to_text(sink) << text;
  if (!attention) return text;
  const auto program = lower(*attention, lowering, direction);
  EXPECT_TRUE(program.ok()) << program.error().to_text() << text;
  if (!program.ok()) return text;
  return plan::signature_of(*program, targets::find_target("h200").value(), 91900, "").text;
}

std::string with(const std::string& clause, const std::string& value) {
  Clauses clauses = base();
  clauses.at(clause) = value;
  return text_of(clauses);
}

// Every field of ir::Attention but the name, `shard`, gradients and `deterministic`, which only a
// backward has, and its tensors' facts and defaults, which no program sees.
const std::pair<const char*, const char*> kDifferent[] = {
    {"B", "3"},
    {"Hq", "2"},
    {"Hkv", "4"},
    {"Sq", "129"},
    {"Skv", "193"},
    {"Dqk", "128"},
    {"Dv", "128"},
    {"dtype", "dtype bf16;"},
    {"layout", "layout q: bhsd, k: bshd, v: bshd, o: bshd;"},
    {"layout", "layout q: bshd, k: bhsd, v: bshd, o: bshd;"},
    {"layout", "layout q: bshd, k: bshd, v: bhsd, o: bshd;"},
    {"layout", "layout q: bshd, k: bshd, v: bshd, o: bhsd;"},
    {"layout", "layout q: sbhd, k: bshd, v: bshd, o: bshd;"},
    {"layout", "layout q: strides(65536, 64, 512, 1), k: bshd, v: bshd, o: bshd;"},
    {"layout", "layout packed_kv;"},
    {"layout", "layout thd;"},
    {"layout", "layout paged(page = 64); lengths kv;"},
    {"layout", "layout paged(page = 32); lengths kv;"},
    {"layout", "layout paged(page = 32, pages = 99); lengths kv;"},
    {"layout", "layout paged(page = 32, tables = 2); lengths kv;"},
    {"align", "align bottom_right;"},
    {"tensor", "tensor t: bf16[Skv];"},
    {"tensor", "tensor t: f32[500];"},
    {"tensor", "tensor t: f16[Skv];"},
    {"param", "param p: i32;"},
    {"scale", "scale 0.25;"},
    {"scale", "scale p;"},
    {"score", "score p + score + t[kv_idx];"},
    {"score", "score p * score - t[kv_idx];"},
    {"score", "score p * score * t[kv_idx];"},
    {"score", "score p * score + 0.5 * t[kv_idx];"},
    {"score", "score p * score + 0.25 * t[kv_idx];"},
    {"mask", ""},
    {"mask", "mask q_idx > kv_idx;"},
    {"mask", "mask q_idx >= kv_idx && q_idx - kv_idx < 16;"},
    {"mask", "mask q_idx >= kv_idx && q_idx - kv_idx < 17;"},
    {"mask", "mask kv_idx % 3 != 0;"},
    {"outputs", "outputs o, lse;"},
    {"more", "tensor s: f32[Hq]; sink s[h];"},
    {"more", "sink 0.5;"},
    {"more", "lengths kv;"},
    {"more", "lengths q;"},
    {"more", "lengths q, kv;"},
    {"more", "dropout 0.1;"},
    {"more", "dropout 0.2;"},
    {"more", "dropout 0.2, q_idx != kv_idx;"},
};

TEST(SpecSignature, SpecsThatDifferInOneFieldDiffer) {
  std::map<std::string, std::string> specs = {{signature(text_of(base())), "the base"}};
  for (const auto& [clause, value] : kDifferent) {
    const auto [at, is_new] = specs.emplace(signature(with(clause, value)), value);
    EXPECT_TRUE(is_new) << value << " has the signature of " << at->second;
  }
}

TEST(SpecSignature, BoundStridesAreNotTheUsualOnes) {
  const auto of = [](const char* layout) {
    return signature(with("layout", layout), plan::Direction::forward, "native");
  };
  EXPECT_NE(of("layout paged(page = 32); lengths kv;"),
            of("layout paged(page = 32, strides = bound); lengths kv;"));
  EXPECT_NE(of("layout thd;"), of("layout thd(strides = bound);"));
}

TEST(SpecSignature, TypesAndScalesOfACacheAreCompiled) {
  const auto cached = [](const char* k, const char* by) {
    Clauses clauses = base();
    clauses.at("dtype") =
        std::string("dtype bf16, v: e4m3, k: ") + k + "; quantize kv(" + by + ");";
    clauses.at("outputs") = "outputs o;";
    return signature(text_of(clauses), plan::Direction::forward, "native");
  };
  const std::string original = cached("e4m3", "head");
  EXPECT_TRUE(cached("e4m3", "head") == original);
  EXPECT_FALSE(cached("e5m2", "head") == original);
  EXPECT_FALSE(cached("e4m3", "batch_head") == original);
}

TEST(SpecSignature, AmaxIsAnOutputAndADefaultIsNotCompiled) {
  const auto eight = [](const char* quantize, const char* outputs) {
    Clauses clauses = base();
    clauses.at("dtype") = quantize;
    clauses.at("score") = "";
    clauses.at("mask") = "mask q_idx >= kv_idx;";
    clauses.at("outputs") = outputs;
    return signature(text_of(clauses));
  };
  const std::string original = eight("dtype e4m3; quantize per_tensor;", "outputs o;");
  EXPECT_FALSE(eight("dtype e4m3; quantize per_tensor;", "outputs o, amax_s;") == original);
  EXPECT_FALSE(eight("dtype e5m2; quantize per_tensor;", "outputs o;") == original);
  EXPECT_FALSE(eight("dtype e4m3; quantize per_tensor, o: e5m2;", "outputs o;") == original);
  EXPECT_FALSE(eight("dtype e4m3; quantize per_tensor;", "outputs o, amax_o;") ==
               eight("dtype e4m3; quantize per_tensor;", "outputs o, amax_s;"));
  EXPECT_TRUE(eight("dtype e4m3; quantize per_tensor, scale_s = 256;", "outputs o;") == original);
}

TEST(SpecSignature, SigmoidIsNotSoftmax) {
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    const std::string softmax = signature(text_of(base()), direction, "unfused");
    EXPECT_FALSE(signature(with("more", "normalize sigmoid;"), direction, "unfused") == softmax);
    EXPECT_TRUE(signature(with("more", "normalize softmax;"), direction, "unfused") == softmax);
  }
}

TEST(SpecSignature, WhatMeansTheSameIsTheSame) {
  const std::string original = signature(text_of(base()));
  EXPECT_TRUE(signature(text_of(base())) == original);
  const std::pair<const char*, const char*> same[] = {
      {"Sq", "2 * 64"},
      {"layout", ""},
      {"align", ""},
      {"scale", ""},
      {"tensor", "learn t: f32[Skv];"},
      {"tensor", "tensor t: f32[Skv] = 0.5 * i0;"},
      {"tensor", "tensor t: f32[256];"},
      {"score", "let x = t[kv_idx];  # the same\n  score score * p;\n  score score + x;"},
      {"mask", "mask kv_idx <= q_idx;"},
      {"mask", "mask q_idx - kv_idx >= 0 && true;"},
      {"outputs", "outputs o;  # and nothing else"},
  };
  for (const auto& [clause, value] : same)
    EXPECT_TRUE(signature(with(clause, value)) == original) << value;
  const std::string text = text_of(base());
  EXPECT_TRUE(signature("# above\nattention other" + text.substr(text.find(" {"))) == original);
}

TEST(SpecSignature, ABackwardDiffersFromItsForwardAndFromOthers) {
  const std::pair<const char*, const char*> different[] = {
      {"more", ""},
      {"more", "grad q, v;"},
      {"more", "grad k;"},
      {"more", "deterministic;"},
      {"tensor", "learn t: f32[Skv];"},
      {"score", "score tanh(score) + p * t[kv_idx];"},
      {"score", "score 2 * tanh(score) + p * t[kv_idx];"},
      {"mask", ""},
      {"dtype", "dtype bf16;"},
      {"Sq", "256"},
  };
  std::map<std::string, std::string> specs;
  for (const auto& [clause, value] : different) {
    const std::string text = with(clause, value);
    const auto [at, is_new] = specs.emplace(signature(text, plan::Direction::backward), value);
    EXPECT_TRUE(is_new) << value << " has the signature of " << at->second;
    specs.emplace(signature(text), "a forward");
  }
  EXPECT_GT(specs.size(), std::size(different)) << "forwards are none of these";
}

TEST(SpecSignature, WeightsAreTold) {
  std::set<std::string> different;
  const char* const kWeights[] = {"",
                                  "normalize sigmoid;",
                                  "weight score;",
                                  "weight relu(score);",
                                  "weight relu(score) / sum(relu(score));",
                                  "weight score / sum(abs(score));",
                                  "weight score / sum(2 * abs(score));",
                                  "weight 2 * exp(score) / sum(exp(score));"};
  for (const char* weight : kWeights) {
    for (const auto direction : {plan::Direction::forward, plan::Direction::backward})
      different.insert(signature(with("more", weight), direction, "native"));
  }
  EXPECT_EQ(different.size(), 2 * std::size(kWeights));
}

TEST(SpecSignature, ProloguesAreTold) {
  std::set<std::string> different;
  const char* const kPrologues[] = {"", "prologue q: x[d_idx] * p;", "prologue k: x[d_idx] * p;",
                                    "prologue k: x[d_idx] * sum(x[d_idx]);",
                                    "prologue k: x[d_idx] * sum(abs(x[d_idx]));"};
  for (const char* prologue : kPrologues) {
    for (const auto direction : {plan::Direction::forward, plan::Direction::backward})
      different.insert(signature(with("more", prologue), direction, "native"));
  }
  EXPECT_EQ(different.size(), 2 * std::size(kPrologues));
}

TEST(SpecSignature, SumsAreTold) {
  std::set<std::string> different;
  const char* const kSums[] = {"t[kv_idx]", "p * t[kv_idx]", "t[kv_idx] * h", "t[kv_idx] * b"};
  for (const char* sum : kSums) {
    const std::string clause = fmt::format("let c = cumsum({}); score score + c[kv_idx];", sum);
    for (const auto direction : {plan::Direction::forward, plan::Direction::backward})
      different.insert(signature(with("more", clause), direction, "native"));
  }
  EXPECT_EQ(different.size(), 2 * std::size(kSums));
}

TEST(SpecSignature, LatentCachesAreTold) {
  std::set<std::string> different;
  const char* const kCaches[] = {"", "values k[0..Dv];", "tensor a: i32[B, Sq, 8]; gather a;",
                                 "tensor a: i32[B, Sq, 8]; gather a; values k[0..Dv];",
                                 "tensor a: i32[B, Sq, 8]; tensor n: i32[B, Sq]; gather a, n;"};
  for (const char* cache : kCaches) {
    Clauses clauses = base();
    clauses.at("layout") = "layout bshd;";
    clauses.at("more") = cache;
    different.insert(signature(text_of(clauses), plan::Direction::forward, "native"));
  }
  EXPECT_EQ(different.size(), std::size(kCaches));
}

TEST(SpecSignature, RowsOfSeveralTypesAreTold) {
  const auto of = [](const std::string& rows) {
    return signature(
        "attention a { dims B = 2, Hq = 4, Hkv = 1, Sq = 1, Skv = 64, Dqk = 576; "
        "layout paged(page = 16" +
            rows + "); values k[0..512]; }",
        plan::Direction::forward, "native");
  };
  EXPECT_NE(of(""), of(", rows = fp8_ds_mla"));
}

TEST(SpecSignature, EpiloguesAreTold) {
  std::set<std::string> different;
  const char* const kEpilogues[] = {"", "epilogue 2 * o;", "gate o;", "gate d_idx;",
                                    "epilogue o + d_idx;"};
  for (const char* epilogue : kEpilogues) {
    for (const auto direction : {plan::Direction::forward, plan::Direction::backward})
      different.insert(signature(with("more", epilogue), direction, "native"));
  }
  EXPECT_EQ(different.size(), 2 * std::size(kEpilogues));
}

TEST(SpecSignature, BranchesAreTold) {
  std::set<std::string> different;
  const char* const kBranches[] = {
      "",
      "branch x; branch y; combine x - y;",
      "branch x; branch y; combine x - 2 * y;",
      "branch x; score score / 2; branch y; combine x - y;",
      "branch x; mask kv_idx != 3; branch y; combine x - y;",
      "learn k2: f16[B, Hkv, Skv, D]; branch x: k = k2; branch y; combine x - y;",
      "learn k2: f16[B, Hkv, Skv, D]; branch x: k = k2, v = k2; branch y; combine x - y;"};
  for (const char* branches : kBranches) {
    for (const auto direction : {plan::Direction::forward, plan::Direction::backward})
      different.insert(signature(with("more", branches), direction, "native"));
  }
  EXPECT_EQ(different.size(), 2 * std::size(kBranches));
}

TEST(SpecSignature, ABackwardThroughLseIsAnother) {
  const auto backward = plan::Direction::backward;
  const std::string without = signature(with("more", "grad k;"), backward, "unfused");
  EXPECT_FALSE(signature(with("more", "grad k, lse;"), backward, "unfused") == without);
}

// Plans of parts do not depend on how the whole is divided, but on the parts.
TEST(SpecSignature, OfAForwardIsWithoutWhatOnlyABackwardOrADivisionHas) {
  const std::string original = signature(text_of(base()));
  for (const char* clause : {"grad q;", "grad q, lse;", "deterministic;", "shard heads;"}) {
    EXPECT_TRUE(signature(with("more", clause)) == original) << clause;
  }
}

// Who adds a field to what is compiled cannot compile this: it wants specs above.
TEST(SpecSignature, TheTablesAboveKnowEveryField) {
  const ir::Attention attention;
  [[maybe_unused]] const auto& [name, dims, dtype, quantize, cache, layouts, align, tensors, sums,
                                params, dag, scale, score, masks, normalize, normalize_pos,
                                quotient, sink, epilogue, place_of_epilogue, branches, branch,
                                dropout, prologue_q, prologue_k, gather, values_of_keys,
                                place_of_values, lengths_q, lengths_kv, wants_o, wants_lse,
                                wants_max, wants_sum_exp, wants_max_with_sink,
                                wants_sum_exp_with_sink, wants_lse_without_sink, wants_amax_s,
                                wants_amax_o, wants_o_inner, wants_branches, place_of_statistics,
                                gradients, reads_d_lse, place_of_d_lse, deterministic, partial,
                                shard, pos] = attention;
  [[maybe_unused]] const auto& [of, dtype_of_tensor, extents, place, learned, monotone, fallback,
                                runs, longest, computed] = ir::CapturedTensor();
  [[maybe_unused]] const auto& [sum, summed, of_batch, of_head] = ir::KeySum();
  [[maybe_unused]] const auto& [of_branch, o_of_branch, inputs_of_branch] = ir::Branch();
  [[maybe_unused]] const auto& [value, sums_of_row, place_of_prologue] = ir::Prologue();
  [[maybe_unused]] const auto& [lists, counts, place_of_gather] = ir::Gather();
  [[maybe_unused]] const auto& [kind, strides, page, pages, tables, bound_strides, rows] =
      ir::Layout();
  [[maybe_unused]] const auto& [type_of_o, type_of_d_o, type_of_gradients, place_of_quantize,
                                scaling] = ir::Quantize();
  // The last one is an engine's own.
  [[maybe_unused]] const auto& [type_of_k, type_of_v, scaled, place_of_cache, factor] = ir::Cache();
  [[maybe_unused]] const auto& [probability, keep, place_of_dropout, origin] = ir::Dropout();
  // How the worker is started is no part of a plan, nor where it is kept, nor which ways of
  // lowering and which rewrites are tried, nor the analyses of masks made so far.
  [[maybe_unused]] const auto& [target, worker, cached, lowering, direction, analyses, rewrites,
                                paired, autotune, measure] = CompileOptions();
  EXPECT_EQ(layouts.size(), 0U);
}

}  // namespace
}  // namespace attn::driver
