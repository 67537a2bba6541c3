// The IR of one attention: built by the front end, transformed by passes.
//
//   s = scale * (Q K^T); s = score(s, b, h, row, column); s = -inf where any mask is false;
//   p = exp(s) / (sum(exp(s)) + exp(sink)); p = dropout(p); o = p V; lse = natural log of this
//   denominator; max = largest s; sum_exp = sum(exp(s - max)). With a sink, max_with_sink =
//   max(max, sink) and sum_exp_with_sink = sum(exp(s - max_with_sink)) + exp(sink - max_with_sink),
//   and lse_without_sink = natural log of sum(exp(s)).
//   A row without visible keys has o = 0, max = lse_without_sink = -inf and, without a sink,
//   lse = -inf.
//
// With lengths, keys from lengths_kv[b] on are hidden, and rows from lengths_q[b] on have o = 0,
// lse = -inf, max_with_sink = -inf and sum_exp_with_sink = 0, with or without a sink.
//
// With Normalize::sigmoid, p = 1 / (1 + exp(-s)) instead, and with Normalize::linear p = s: each
// weight by itself, and 0 where a mask hides it or s is -inf. Such an attention has no sink, and o
// is its only output. Any function of a score is linear, with the function as a part of the score.
//
// With Normalize::quotient, p = f / (sum of g along the row), and lse = natural log of this sum:
// see Quotient. There is no sink, and no statistic but lse.
//
// With an epilogue, o = epilogue(o, b, h, row, depth) for each of its elements: in f32 before o is
// rounded, and of o = 0 in a row without visible keys. Rows from lengths_q[b] on stay 0. o_inner is
// o before it, rounded as o is. There is none with `quantize`.
//
// With branches, which are attentions over the same dims of o, the epilogue reads the o of each as
// a captured tensor (Branch::o), rounded as o is, and o_inner is the o of this one: o is a
// combination of all. A branch has the tensors and params of this one, and no others.
//
// With `quantize`, q, k, v and most others are 8-bit floats, each with a scale (kScales): what a
// tensor x stands for is descale_x * x, and what is stored of a result y is scale_y * y, rounded
// and saturated (runtime/base/dtype.h):
//
//   s = scale * descale_q * descale_k * (Q K^T); then as above up to the weights w = exp(s - m) of
//   a row, where m is its largest s, or the sink if that is larger, and p = w / sum(w), with the
//   sink in the sum; dropout; w8 = w * scale_s as `dtype`; y = descale_s * descale_v * (w8 V) /
//   sum(w); o = y * scale_o as o's type. amax_s = max |p|, amax_o = max |y|, of all elements.
//
// A kernel rounds w relative to the largest score that it has seen, and so not to the same bits.
//
// With Scaling::mxfp8, what an element of q, k or v stands for is itself times the scale of its
// block (block_scales.h). Then y = (round(16 w) / 16 V) / sum(w), and o = y in a type of 16 bits.
//
// With values_of_keys, v is the first Dv columns of k: there is no tensor v, and layouts["v"] is
// that of k.
//
// With a Gather, a row sees the keys that a tensor lists, each as often as it is listed, and
// `column` is the position of the key that is listed, in [0, Skv).
// With `cache`, k and v are of 8 bits beside q and o of 16: what an element of k stands for is
// itself times its k_scale, of v itself times its v_scale (cache_scales.h), and all else is as
// above. Such an attention has no gradients.
//
// `row` is the row number. If the spec aligns bottom right, its q_idx has become row + (Skv - Sq),
// with lengths instead of sizes where there are lengths.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/dag.h"
#include "runtime/base/dtype.h"
#include "runtime/base/row_format.h"
#include "runtime/base/status.h"
#include "runtime/plan/shape.h"

namespace attn::ir {

using plan::Dim;
using plan::kDims;
using plan::parse_dim;
using plan::to_string;

// Sizes by dimension; a dimension without a size is open.
class Dims {
 public:
  std::optional<std::int64_t> get(Dim dim) const { return sizes_[static_cast<std::size_t>(dim)]; }
  std::int64_t operator[](Dim dim) const { return *get(dim); }  // must be bound
  void set(Dim dim, std::optional<std::int64_t> size) {
    sizes_[static_cast<std::size_t>(dim)] = size;
  }
  bool bound() const;  // all of them
  bool operator==(const Dims&) const = default;

 private:
  std::array<std::optional<std::int64_t>, kDims.size()> sizes_;
};

enum class LayoutKind : std::uint8_t {
  bshd,
  bhsd,
  sbhd,
  strided,
  thd,         // [T, H, D]: packed sequences, each with its own length
  paged,       // k and v: [pages, Hkv, page, D] with a page table [B, ceil(Skv / page)]
  packed_qkv,  // q, k and v are parts of one tensor [B, S, Hq + 2 Hkv, D]
  packed_kv    // k and v are parts of one tensor [B, Skv, 2 Hkv, D]
};
std::string_view to_string(LayoutKind kind);
std::optional<LayoutKind> parse_layout_kind(std::string_view text);

// The memory layout of q, k, v or o. `strides` (elements, for [B, H, S, D]) are for strided, and
// for thd with rows that are not packed (without the batch stride). `page` (rows per page) and
// `pages` (in the pool; 0: as many as the tensor needs) are for paged. `tables` 1: k and v share
// one page table if they are paged alike; 2: each has its own. `bound_strides`, of thd and paged:
// strides, and the number of pages, are those of the tensor that is bound. `rows`, of paged: keys
// are stored as bytes of that format, and what it rounds them to is what they are; strides are of
// bytes.
struct Layout {
  LayoutKind kind = LayoutKind::bshd;
  std::array<std::int64_t, 4> strides{};
  std::int64_t page = 0;
  std::int64_t pages = 0;
  std::int64_t tables = 1;
  bool bound_strides = false;
  std::optional<RowFormat> rows{};
  bool operator==(const Layout&) const = default;
};

// Strides in elements for logical dims [B, H, S, D]. For thd: those within one sequence, and S * H
// * D for the batch. For paged: those of the pool [pages, H, page, D]. Of bound strides: usual
// ones. `heads` are Hq and Hkv, needed by the packed kinds.
struct Heads {
  std::int64_t q = 1;
  std::int64_t kv = 1;
};
std::array<std::int64_t, 4> strides_of(const Layout& layout,
                                       const std::array<std::int64_t, 4>& dims, Heads heads = {});

enum class Align : std::uint8_t { top_left, bottom_right };
std::string_view to_string(Align align);

// What makes weights of the scores.
enum class Normalize : std::uint8_t { softmax, sigmoid, linear, quotient };
std::string_view to_string(Normalize normalize);
std::optional<Normalize> parse_normalize(std::string_view text);

// Weights of Normalize::quotient. f and g are reals of constants, of the term, which is the leaf
// `score` in them, and of the leaf `unit`. If `exponential`, the term is exp(s - m) and the unit
// exp(-m), for any number m of the row: both have the degree 1, so that m changes no quotient. With
// m = max(0, largest s) neither overflows. Else the term is s, and there is no unit.
//
// g is never negative. A row whose sum is 0 has no weights: o = 0, lse = -inf.
struct Quotient {
  ExprId f = 0;
  ExprId g = 0;
  bool exponential = false;
  bool operator==(const Quotient&) const = default;
};

// What each row of q or k becomes before the products, rounded as it is: element `depth` is
// `value`. An element of the row itself is a load of "q" or "k" at the batch, the head (of k: the
// key head), the row (of k: the column) and an integer.
struct Prologue {
  ExprId value = 0;            // real; of these loads and indexes, `depth`, sums, tensors, params
  std::vector<ExprId> sums{};  // reals, as `value`: `row_sum i` is the sum of sums[i] over depth.
                               // Each reads those before it
  SourcePos pos{};
  bool operator==(const Prologue&) const = default;
};

// Which keys a row sees: those at keys[b, row, n], in [0, Skv), for n in [0, counts[b, row]); -1
// is none. Masks, and lengths of keys, hide further ones. It has neither branches, gradients,
// dropout, prologues nor 8-bit floats.
struct Gather {
  std::string keys;      // i32 [B, Sq, N], captured
  std::string counts{};  // i32 [B, Sq], captured, in [0, N]; "": all N
  SourcePos pos{};
  bool operator==(const Gather&) const = default;
};

// What may be divided among several GPUs (compiler/sharding): rows and keys, heads, or both.
enum class Shard : std::uint8_t { sequence, heads, both };
inline constexpr std::string_view kShardNames[] = {"sequence", "heads", "both"};
std::string_view to_string(Shard shard);
std::optional<Shard> parse_shard(std::string_view text);

// A row-major tensor that is passed at run time and read by expressions. Extents are integer
// expressions of dimensions and constants.
struct CapturedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<ExprId> extents;
  SourcePos pos;
  bool learned = false;              // has a gradient
  bool monotone = false;             // declared: never decreases along the last axis
  std::optional<ExprId> fallback{};  // default elements, as a function of their indexes
  // Declared: the maximum number of runs of equal elements along the last axis, and the maximum
  // length of a run. Expressions like extents.
  std::optional<ExprId> runs{};
  std::optional<ExprId> longest_run{};
  bool computed = false;  // by kernels before those of the attention, and not passed
  bool operator==(const CapturedTensor&) const = default;
};

// A tensor of sums along keys, f32, that expressions read and nobody passes: its last axis is that
// of keys, and the axes before it are the batch, the query head, both or none. Element n of a row
// is the sum of `value` over the columns 0 to n.
struct KeySum {
  CapturedTensor tensor;  // learned if `value` reads a learned tensor
  ExprId value = 0;       // real; of the batch, the head, the column, tensors and params
  bool of_batch = false, of_head = false;  // its axes besides that of keys
  bool operator==(const KeySum&) const = default;
};

struct Param {
  std::string name;
  DType dtype = DType::f32;  // f32 or i32
  SourcePos pos;
  bool operator==(const Param&) const = default;
};

// Keeps an element of p with probability 1 - `probability`, scaled by 1 / (1 - `probability`).
struct Dropout {
  double probability = 0;        // in [0, 1)
  std::optional<ExprId> keep{};  // boolean: which elements to keep; absent: random, by seed, offset
  SourcePos pos;
  // Integers: the indices that random numbers are drawn for, where the attention is a part of a
  // larger one (compiler/sharding); absent: its own. Kernels do not take it.
  struct Origin {
    ExprId head, row, column;
    bool operator==(const Origin&) const = default;
  };
  std::optional<Origin> origin{};  // only without `keep`

  // attnc's own random numbers are of 15 bits: those below dropped() drop an element.
  static constexpr std::int64_t kRandomNumbers = std::int64_t{1} << 15;
  std::int64_t dropped() const;      // below kRandomNumbers
  double exact_probability() const;  // with `keep`: probability; else what it is rounded to
  bool operator==(const Dropout&) const = default;
};

// How 8-bit floats are scaled: by one number a tensor (kScales), or one for each block of 32
// (block_scales.h).
enum class Scaling : std::uint8_t { per_tensor, mxfp8 };
std::string_view to_string(Scaling scaling);
std::optional<Scaling> parse_scaling(std::string_view text);

struct Quantize {
  DType o = DType::e4m3;          // or bf16, f16, as always with mxfp8
  DType d_o = DType::e4m3;        // of do, and of the gradient of the scores: 8 bits
  DType gradients = DType::e4m3;  // of dq, dk and dv, or bf16, f16, as always with mxfp8
  SourcePos pos;
  Scaling by = Scaling::per_tensor;
  bool operator==(const Quantize&) const = default;
};

// The f32[1] tensors in `tensors` of an attention with Scaling::per_tensor. One for a tensor that
// is not of 8 bits does not exist.
struct Scale {
  std::string_view name;
  std::string_view of;    // a tensor; "" for what no tensor holds: p and its gradient
  bool backward = false;  // exists only beside gradients
};
inline constexpr Scale kScales[] = {{"descale_q", "q"},       {"descale_k", "k"},
                                    {"descale_v", "v"},       {"descale_s", ""},
                                    {"scale_s", ""},          {"scale_o", "o"},
                                    {"descale_o", "o", true}, {"descale_do", "do", true},
                                    {"descale_dp", "", true}, {"scale_dp", "", true},
                                    {"scale_dq", "dq", true}, {"scale_dk", "dk", true},
                                    {"scale_dv", "dv", true}};

bool is_scale(std::string_view name);  // in kScales or kBlockScales

// What has a scale of its own, of keys and values of 8 bits.
enum class CacheScale : std::uint8_t {
#define ATTN_CACHE_SCALE(name, of_batch, of_head, of_token, meaning) name,
#include "compiler/ir/cache_scales.def"
#undef ATTN_CACHE_SCALE
};

// Keys and values of 8 bits beside queries of 16, as caches of inference engines have them:
// e4m3, e5m2 or i8 each. Their scales are two of `tensors` (cache_scales.h).
struct Cache {
  DType k = DType::e4m3, v = DType::e4m3;
  CacheScale by = CacheScale::tensor;
  SourcePos pos;
  // The scale of the keys of a query head, where an engine multiplies queries by it: scores are
  // without it then.
  std::optional<ExprId> factor_of_queries{};
  bool operator==(const Cache&) const = default;
};

// Names of the i32[B] tensors in `tensors` of an attention with lengths.
inline constexpr std::string_view kLengthsQ = "lengths_q";
inline constexpr std::string_view kLengthsKv = "lengths_kv";

struct Branch;

struct Attention {
  std::string name;
  Dims dims;
  DType dtype = DType::bf16;  // of q, without `cache` of k and v, without `quantize` of all others
  std::optional<Quantize> quantize{};                  // exactly if dtype has 8 bits
  std::optional<Cache> cache{};                        // only if it has 16
  std::map<std::string, Layout, std::less<>> layouts;  // "q", "k", "v", "o": all four present
  Align align = Align::top_left;
  std::vector<CapturedTensor> tensors;
  std::vector<KeySum> sums{};  // each is computed before scores are (compiler/ir/key_sums.h)
  std::vector<Param> params;
  Dag dag;
  ExprId scale = 0;           // real; of dimensions, constants and params
  ExprId score = 0;           // real; the modified score, `score` itself if there is none
  std::vector<ExprId> masks;  // boolean; all must hold
  Normalize normalize = Normalize::softmax;
  SourcePos normalize_pos{};
  std::optional<Quotient> quotient{};  // exactly with Normalize::quotient
  std::optional<ExprId> sink{};        // real; of the head, tensors, params and constants
  // Real; what becomes of each element of o, by its value and place: of the leaves `output`,
  // `depth`, batch, head and row, tensors, params and constants.
  std::optional<ExprId> epilogue{};
  SourcePos epilogue_pos{};        // of the first clause
  std::vector<Branch> branches{};  // only with an epilogue
  std::string branch{};            // the name of this one beside others, or of a branch
  std::optional<Dropout> dropout{};
  std::optional<Prologue> prologue_q{}, prologue_k{};
  std::optional<Gather> gather{};
  bool values_of_keys = false;  // beside neither branches, gradients, a prologue of k nor 8 bits
  SourcePos values_pos{};       // of the clause
  bool lengths_q = false;       // then `tensors` has kLengthsQ
  bool lengths_kv = false;      // then `tensors` has kLengthsKv
  bool wants_o = true;
  bool wants_lse = false;
  bool wants_max = false;
  bool wants_sum_exp = false;
  bool wants_max_with_sink = false;  // only with a sink, like the next two
  bool wants_sum_exp_with_sink = false;
  bool wants_lse_without_sink = false;
  bool wants_amax_s = false;  // only with `quantize`, like the next
  bool wants_amax_o = false;
  bool wants_o_inner = false;            // o before the epilogue; only with one
  bool wants_branches = false;           // o and lse of branches (Branch::o, lse())
  SourcePos statistics_pos{};            // of the first statistic other than lse
  std::vector<std::string> gradients{};  // "q", "k", "v", learned tensors; empty: forward only
  bool reads_d_lse =
      false;              // the backward has an input dlse, f32, of the layout of lse: `grad lse`
  SourcePos d_lse_pos{};  // of `lse` in the clause
  bool deterministic = false;
  // Rows have more keys than these, or a sink besides: o and lse that its backward reads are of
  // all. Of softmax.
  bool partial = false;
  std::optional<Shard> shard{};  // absent: whatever takes least
  SourcePos pos;

  bool wants_max_or_sum() const {
    return wants_max || wants_sum_exp || wants_max_with_sink || wants_sum_exp_with_sink;
  }
  // Whether it has a statistic other than lse.
  bool wants_more_than_lse() const { return wants_max_or_sum() || wants_lse_without_sink; }
  // The type of "q", "k", "v", "o", "do", "dq", "dk" or "dv".
  DType dtype_of(std::string_view tensor) const;
  // Whether it has this one of kScales.
  bool has(const Scale& one) const;
  bool is_mxfp8() const { return quantize && quantize->by == Scaling::mxfp8; }
  // A captured tensor, one of sums, or the o of a branch.
  const CapturedTensor* find_tensor(std::string_view tensor) const;
  const KeySum* find_sum(std::string_view tensor) const;
  // Keys of a row that may be visible: those that are listed, or all. Sizes are bound.
  std::int64_t keys_of_row() const;
  const Param* find_param(std::string_view param) const;
  // `wanted`, with `_` appended until no tensor or param has the name.
  std::string unused_name(std::string wanted) const;
  bool is_sigmoid() const { return normalize == Normalize::sigmoid; }
  bool is_linear() const { return normalize == Normalize::linear; }
  bool is_softmax() const { return normalize == Normalize::softmax; }
  // Whether a weight depends on its own score alone: there is no lse.
  bool is_pointwise() const { return is_sigmoid() || is_linear(); }
  // Whether it has random dropout.
  bool is_random() const { return dropout && !dropout->keep; }
  // Scale, score, masks, f and g, sink, epilogue, dropout keep, prologues, extents, fallbacks,
  // runs, sums.
  std::vector<ExprId> roots() const;
  // The same roots in the same order, writable for a pass that builds a new dag.
  std::vector<ExprId*> root_places();
  // Compares also what no root reaches in the DAG, in order; see is_same().
  bool operator==(const Attention&) const = default;
};

// An attention that is computed before another one, whose epilogue reads its o.
struct Branch {
  Attention attention{};  // of the same B, Hq, Sq, Dv and dtype; has no branches
  CapturedTensor o{};     // of the dims of o, bhsd; extents are of the other one's dag
  // The captured tensors that it reads as "q", "k" or "v"; others are those of the attention.
  std::map<std::string, std::string, std::less<>> inputs{};

  // What the forward of a training pair keeps: "NAME_o" and, unless weights are pointwise,
  // "NAME_lse".
  std::string lse() const { return attention.branch + "_lse"; }
  // The tensor of the whole that the branch calls so.
  std::string outer(const std::string& tensor) const;
  bool operator==(const Branch&) const = default;
};
std::string output_of_branch(std::string_view branch);  // "NAME_o"

// The attention with a DAG of what its roots reach alone, in the same order.
Attention compact(const Attention& attention);

// Whether two attentions, compact, are equal. What is equal but for the order of nodes is not.
bool is_same(const Attention& a, const Attention& b);

// For hash tables of attentions.
struct AttentionHash {
  std::size_t operator()(const Attention& attention) const { return attention.dag.hash(); }
};

// The outputs by name, in the order in which they are listed and bound.
struct Output {
  std::string_view name;
  bool Attention::*wanted;
};
inline constexpr Output kOutputs[] = {{"o", &Attention::wants_o},
                                      {"o_inner", &Attention::wants_o_inner},
                                      {"lse", &Attention::wants_lse},
                                      {"max", &Attention::wants_max},
                                      {"sum_exp", &Attention::wants_sum_exp},
                                      {"max_with_sink", &Attention::wants_max_with_sink},
                                      {"sum_exp_with_sink", &Attention::wants_sum_exp_with_sink},
                                      {"lse_without_sink", &Attention::wants_lse_without_sink},
                                      {"amax_s", &Attention::wants_amax_s},
                                      {"amax_o", &Attention::wants_amax_o}};
// o and o_inner, which have its dims, layout and type. (The o of a branch is bhsd.)
inline bool is_o(std::string_view output) { return output == "o" || output == "o_inner"; }
// f32[1]; other outputs have a value for each row, or are o.
inline bool is_amax(std::string_view output) { return output.starts_with("amax_"); }
// -inf of nothing.
inline bool is_logarithm(std::string_view output) {
  return output.starts_with("lse") || output.starts_with("max");
}
// Exists only with a sink.
inline bool needs_sink(std::string_view output) { return output.ends_with("_sink"); }

// The type an element of this dtype has in expressions: bool -> boolean, i64 -> wide, other
// integers -> integer, floats -> real.
Type value_type(DType dtype);

// The value of an expression of constants (dimension arithmetic after all dimensions are bound), or
// nullopt.
std::optional<std::int64_t> fold_integer(const Dag& dag, ExprId id);
// The same, with these sizes for dimensions.
std::optional<std::int64_t> fold_integer(const Dag& dag, ExprId id, const Dims& dims);
std::optional<double> fold_real(const Dag& dag, ExprId id);

// Like to_source(dag, id), but prints the row as `q_idx` if the attention is aligned top left.
std::string to_source(const Attention& attention, ExprId id);

// Whether the parts of a quotient read the unit: then m is at least 0.
bool reads_unit(const Attention& attention);

// Checks types, operand counts, symbols, extents, leaves (no score in a mask or in the scale, no
// index in the scale or in an extent), types of roots, positive sizes, and Hq being a multiple of
// Hkv. Runs after the front end and after every pass; a failure is a compiler bug (error
// `internal`).
Status verify(const Attention& attention);

// The text form. parse() reads it back to a value that prints as the same text. Prints only
// reachable nodes, renumbered in order, without positions. Errors of parse(): invalid_argument,
// with a message that begins with the line and payload {"line": n}.
std::string to_text(const Attention& attention);
Result<Attention> parse(std::string_view text);

}  // namespace attn::ir
