// Attentions small enough to execute on the host, identical in the program that writes their
// kernels and in the test that runs them.
#pragma once

#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "compiler/engines/cudnn/lower_segments.h"
#include "compiler/rewrite/simplify.h"
#include "runtime/base/check.h"
#include "tests/unit/compiler/gradient/random_score.h"

namespace attn::programs::testing {

struct Case {
  const char* name;
  const char* clauses;
};

inline constexpr const char* kDims = "dims B = 2, Hq = 4, Hkv = 2, Sq = 10, Skv = 13, D = 8; ";

inline constexpr Case kCases[] = {
    {"plain", ""},
    {"f16", "dtype f16;"},
    {"causal", "mask q_idx >= kv_idx; scale 0.7;"},
    {"empty_rows", "mask kv_idx < q_idx - 2;"},
    {"softcap", "score 2 * tanh(score / 2); mask abs(q_idx - kv_idx) < 5;"},
    {"steep_where_hidden", "score sqrt(score + 50 * (q_idx - kv_idx)); mask q_idx > kv_idx;"},
    {"head_dim_5", "dims B = 1, Hq = 3, Hkv = 1, Sq = 7, Skv = 9, Dqk = 5, Dv = 11; layout bhsd;"},
    {"one_row", "dims B = 2, Hq = 4, Hkv = 2, Sq = 1, Skv = 40, D = 8; lengths kv;"},
    {"one_row_lengths", "dims B = 2, Hq = 4, Hkv = 2, Sq = 1, Skv = 9, D = 8; lengths q, kv;"},
    {"one_key", "dims B = 2, Hq = 2, Hkv = 2, Sq = 5, Skv = 1, D = 8;"},
    {"many_keys", "dims B = 1, Hq = 2, Hkv = 1, Sq = 3, Skv = 77, D = 8; mask kv_idx % 3 != 1;"},
    {"lengths", "lengths q, kv; align bottom_right; mask q_idx >= kv_idx;"},
    {"thd", "layout thd; mask q_idx >= kv_idx;"},
    {"thd_queries", "layout q: thd, k: bshd, v: bshd, o: thd; mask q_idx >= kv_idx;"},
    {"thd_one_row",
     "dims B = 4, Hq = 4, Hkv = 2, Sq = 1, Skv = 9, D = 8; layout thd; learn t: f32[Hq];"
     "score score * t[h];"},
    {"packed_kv", "layout packed_kv; lengths q, kv; mask q_idx >= kv_idx;"},
    {"sbhd", "layout sbhd; scale 0.25;"},
    {"packed", "dims B = 2, Hq = 4, Hkv = 2, Sq = 6, Skv = Sq, D = 8; layout packed_qkv;"},
    {"strides", "layout q: strides(Sq * Hq * D, D * Sq, 1, Sq), k: strides(9, 2000, 100, 1);"},
    {"dropout", "tensor keep: i32[B, Hq, Sq, Skv]; dropout 0.25, keep[b, h, q_idx, kv_idx] != 0;"},
    {"only_v", "grad v;"},
    {"sink", "tensor sinks: f32[Hq]; sink sinks[h]; mask kv_idx < q_idx - 2;"},
    {"learned_sink", "learn sinks: f32[Hq]; sink 2 * sinks[h]; lengths q, kv;"},
    {"learned_sink_alone", "learn sinks: bf16[Hq]; sink sinks[h]; layout thd; grad sinks;"},
    {"learned_sink_alone_padded",
     "learn sinks: f32[Hq]; sink sinks[h]; lengths q, kv; grad sinks;"},
    {"lse", "mask kv_idx < q_idx - 2; grad q, k, v, lse;"},
    {"lse_thd", "layout thd; mask q_idx >= kv_idx; grad q, k, v, lse;"},
    {"lse_sink",
     "learn sinks: f32[Hq]; learn t: f32[Hq]; sink 2 * sinks[h]; score score * t[h]; lengths q, kv;"
     "mask kv_idx < q_idx - 2; grad q, k, v, sinks, t, lse;"},
    {"lse_sink_alone", "learn sinks: f32[Hq]; sink sinks[h]; lengths q, kv; grad sinks, lse;"},
    {"learned_alone", "learn t: f32[Hq]; score score * t[h]; sink t[h]; grad t;"},
    {"learned_bias", "learn bias: f32[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx];"},
    {"learned_table",
     "learn table: f16[7, Hq]; score score + table[clamp(q_idx - kv_idx, -3, 3) + 3, h];"},
    {"learned_twice",
     "learn w: f64[20]; learn idle: f32[3]; param p: f32; lengths kv;"
     "score score * w[h] + p * w[q_idx] ** 2 - w[kv_idx]; mask kv_idx != 4;"},
    {"learned_everywhere",
     "learn t: f32[Hq]; tensor where_to: i32[Skv];"
     "score tanh(score * t[h]) + t[where_to[kv_idx] % 4]; sink t[h] * t[h] - 1;"},
    {"learned_out_of_range",
     "learn u: f32[4]; score where(kv_idx < 4, score + u[kv_idx], score); grad u, q;"},
    {"learned_steep_where_hidden",
     "learn u: f32[Skv]; score score + sqrt(u[kv_idx] * u[kv_idx] + 40 * (q_idx - kv_idx));"
     "mask q_idx > kv_idx;"},
    {"learned_roots", "learn u: f32[Skv]; score score + sqrt(u[kv_idx] + 6);"},
    {"keyless",
     "dims B = 3, Hq = 2, Hkv = 1, Sq = 5, Skv = 12, D = 8; lengths q, kv;"
     "learn sinks: f32[Hq]; learn u: f32[B]; sink sinks[h]; score score * u[b];"},
    {"no_keys",
     "dims B = 2, Hq = 2, Hkv = 1, Sq = 5, Skv = 0, D = 8; layout thd;"
     "learn sinks: f32[Hq]; sink sinks[h];"},
    {"learned_rows",
     "dims B = 1, Hq = 2, Hkv = 2, Sq = 70, Skv = 3, D = 8; learn u: f32[Sq];"
     "score score * u[q_idx];"},
    {"documents",
     "dims B = 3, Hq = 4, Hkv = 2, Sq = 11, Skv = Sq, D = 8; param p: f32;"
     "tensor doc: i32[B, Skv] monotone runs(5, 9) = where(i1 < 3 * i0, 0, 1 + (i1 + i0) // 7);"
     "score score + p * (b + 1) * (kv_idx - q_idx);"
     "mask doc[b, q_idx] == doc[b, kv_idx] && q_idx >= kv_idx;"},
    {"documents_of_every_batch",
     "dims B = 2, Hq = 2, Hkv = 2, Sq = 37, Skv = Sq, Dqk = 5, Dv = 11; tensor sinks: f32[Hq];"
     "tensor doc: i64[Skv] monotone runs(3) = 5 * ((i0 + 3) // 20); sink sinks[h];"
     "mask doc[kv_idx] == doc[q_idx];"},
    {"documents_in_packed_rows",
     "dims B = 2, Hq = 2, Hkv = 1, Sq = 9, Skv = Sq, D = 8; layout packed_qkv;"
     "tensor doc: i32[B, Skv] monotone runs(9) = i1 // (i0 + 1);"
     "mask doc[b, q_idx] == doc[b, kv_idx];"},
    {"learned_and_dropped",
     "learn u: f32[Skv]; tensor keep: bool[Sq, Skv]; score score * u[kv_idx];"
     "dropout 0.5, keep[q_idx, kv_idx];"},
    {"sigmoid", "normalize sigmoid; score score - log(Skv);"},
    {"sigmoid_f16", "normalize sigmoid; dtype f16; scale 3.0; mask kv_idx < q_idx - 2;"},
    {"sigmoid_thd", "normalize sigmoid; layout thd; mask q_idx >= kv_idx;"},
    {"sigmoid_lengths", "normalize sigmoid; lengths q, kv; score where(kv_idx == 2, -inf, score);"},
    {"sigmoid_learned_and_dropped",
     "normalize sigmoid; learn u: f32[Skv]; tensor keep: bool[Sq, Skv];"
     "score score * u[kv_idx] - u[h]; dropout 0.5, keep[q_idx, kv_idx];"},
    {"weight", "weight silu(score) / Skv;"},
    {"weight_f16", "weight relu(score) ** 2; dtype f16; scale 3.0; mask kv_idx < q_idx - 2;"},
    {"weight_thd", "weight score; layout thd; mask q_idx >= kv_idx;"},
    {"weight_lengths", "weight score - 0.5; lengths q, kv; score where(kv_idx == 2, -inf, score);"},
    {"weight_learned_and_dropped",
     "learn u: f32[Skv]; tensor keep: bool[Sq, Skv]; score score - u[h];"
     "weight u[kv_idx] * silu(score); dropout 0.5, keep[q_idx, kv_idx];"},
    {"weight_no_keys",
     "dims B = 2, Hq = 2, Hkv = 1, Sq = 5, Skv = 0, D = 8; layout thd; weight relu(score);"},
    {"sigmoid_no_keys",
     "dims B = 2, Hq = 2, Hkv = 1, Sq = 5, Skv = 0, D = 8; layout thd; normalize sigmoid;"},
};

// Followed by this many random scores of learned tensors.
inline constexpr std::size_t kRandom = 40;
inline constexpr std::size_t kAll = std::size(kCases) + kRandom;

inline std::string name_of(std::size_t number) {
  if (number < std::size(kCases)) return kCases[number].name;
  return "random_" + std::to_string(number - std::size(kCases));
}

inline ir::Attention attention_of(std::size_t number) {
  if (number >= std::size(kCases)) {
    const auto seed = static_cast<unsigned>(number - std::size(kCases));
    ir::Attention attention = gradient::testing::RandomScore(seed, 11).make();
    attention.wants_lse = true;
    return rewrite::simplify(attention);
  }
  const Case& one = kCases[number];
  std::string clauses = one.clauses;
  if (clauses.find("dims") == std::string::npos) clauses = kDims + clauses;
  const bool alone = clauses.find("normalize sigmoid") != std::string::npos ||
                     clauses.find("weight ") != std::string::npos;
  const char* outputs = alone ? "outputs o; " : "outputs o, lse; ";
  const support::Source source(one.name, "attention f { " + (outputs + clauses) + " }");
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  return *attention;
}

// Packed sequences as ragged ones, as the lowering of that name has them, but unfused.
inline Result<plan::Program> lowered(const ir::Attention& attention, std::string_view name,
                                     plan::Direction direction) {
  const std::optional<engines::Segments> documents = engines::segments(attention);
  if (!documents) return driver::lower(attention, std::string(name), direction);
  ATTN_ASSIGN(const ir::Attention ragged,
              engines::ragged(attention, *documents, direction == plan::Direction::backward));
  ATTN_ASSIGN(plan::Program program, driver::lower(ragged, std::string(name), direction));
  return engines::of_segments(attention, *documents, std::move(program));
}

// The forward and the backward; their kernels are numbered consecutively.
inline std::vector<plan::Program> programs_of(const ir::Attention& attention) {
  std::vector<plan::Program> programs;
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    // Without keys, one generated kernel is the whole forward.
    const bool filled =
        attention.dims[ir::Dim::Skv] == 0 && programs.empty() && !attention.is_pointwise();
    auto program = lowered(attention, filled ? "cudnn" : "unfused", direction);
    ATTN_CHECK(program.ok(), program.error().to_text());
    programs.push_back(std::move(program).value());
  }
  return programs;
}

}  // namespace attn::programs::testing
