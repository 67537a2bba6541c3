// One attention, as meaning: what the front end makes of a spec and every pass maps to another.
//
//   s = scale * (Q K^T); s = score(s, b, h, row, column); s = -inf where any mask is false;
//   p = exp(s) / (sum(exp(s)) + exp(sink)); p = dropout(p); o = p V; lse = the natural log of that
//   denominator; max = the largest s, sum_exp = sum(exp(s - max)). With a sink, max_with_sink is
//   the larger of max and sink, and sum_exp_with_sink = sum(exp(s - that)) + exp(sink - that). A
//   row with nothing visible gives o = 0, max = -inf and, without a sink, lse = -inf.
//
// With lengths, keys from lengths_kv[b] on are hidden and rows from lengths_q[b] on see nothing at
// all: o = 0, lse = -inf, max_with_sink = -inf, sum_exp_with_sink = 0, sink or not.
//
// `row` is the row number; a spec's q_idx has become row + (Skv - Sq), of lengths where there are
// lengths, where the spec aligns bottom right.
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
#include "runtime/base/status.h"

namespace attn::ir {

enum class Dim : std::uint8_t { B, Hq, Hkv, Sq, Skv, Dqk, Dv };
inline constexpr std::array kDims = {Dim::B,   Dim::Hq,  Dim::Hkv, Dim::Sq,
                                     Dim::Skv, Dim::Dqk, Dim::Dv};
std::string_view to_string(Dim dim);
std::optional<Dim> parse_dim(std::string_view text);  // not "D": that is both Dqk and Dv

// Sizes by name; an absent one is open.
class Dims {
 public:
  std::optional<std::int64_t> get(Dim dim) const { return sizes_[static_cast<std::size_t>(dim)]; }
  std::int64_t operator[](Dim dim) const { return *get(dim); }  // requires that it is bound
  void set(Dim dim, std::optional<std::int64_t> size) {
    sizes_[static_cast<std::size_t>(dim)] = size;
  }
  bool bound() const;  // all of them

 private:
  std::array<std::optional<std::int64_t>, kDims.size()> sizes_;
};

enum class LayoutKind : std::uint8_t {
  bshd,
  bhsd,
  sbhd,
  strided,
  thd,         // [T, H, D]: the sequences of a batch one behind the other, each of its length
  paged,       // k and v: [pages, Hkv, page, D] with a page table [B, ceil(Skv / page)]
  packed_qkv,  // q, k and v are parts of one tensor [B, S, Hq + 2 Hkv, D]
  packed_kv    // k and v are parts of one tensor [B, Skv, 2 Hkv, D]
};
std::string_view to_string(LayoutKind kind);
std::optional<LayoutKind> parse_layout_kind(std::string_view text);

// How one of q, k, v, o lies in memory. `strides` (elements, for [B, H, S, D]) only when strided,
// and when thd where rows are not packed (the batch's is not used); `page` (rows) and `pages` (in
// the pool; 0: as many as the whole of it needs) only when paged. `tables` 1: k and v share one
// page table where they are paged alike; 2: each has its own.
struct Layout {
  LayoutKind kind = LayoutKind::bshd;
  std::array<std::int64_t, 4> strides{};
  std::int64_t page = 0;
  std::int64_t pages = 0;
  std::int64_t tables = 1;
  bool operator==(const Layout&) const = default;
};

// Strides in elements for logical dims [B, H, S, D]; of thd those within one sequence, with S * H *
// D for the batch; of paged those of the pool [pages, H, page, D]. `heads` are Hq and Hkv, which
// the packed kinds need.
struct Heads {
  std::int64_t q = 1;
  std::int64_t kv = 1;
};
std::array<std::int64_t, 4> strides_of(const Layout& layout,
                                       const std::array<std::int64_t, 4>& dims, Heads heads = {});

enum class Align : std::uint8_t { top_left, bottom_right };
std::string_view to_string(Align align);

// A tensor given at run time and read by expressions. Extents are integer expressions of
// dimensions and constants; row-major.
struct CapturedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<ExprId> extents;
  SourcePos pos;
  bool learned = false;              // has a gradient
  bool monotone = false;             // declared: never decreases along the last axis
  std::optional<ExprId> fallback{};  // of its own indexes: elements where no value is given
  // Declared: along the last axis at most so many stretches of equal elements, and how many of
  // these lie in one at most. Like extents.
  std::optional<ExprId> runs{};
  std::optional<ExprId> longest_run{};
};

struct Param {
  std::string name;
  DType dtype = DType::f32;  // f32 or i32
  SourcePos pos;
};

// Keeps an element of p with 1 - probability, scaled by 1 / (1 - probability).
struct Dropout {
  double probability = 0;        // in [0, 1)
  std::optional<ExprId> keep{};  // boolean: what is kept; without it random, by seed and offset
  SourcePos pos;
};

// i32[B] tensors among `tensors` of an attention that has lengths.
inline constexpr std::string_view kLengthsQ = "lengths_q";
inline constexpr std::string_view kLengthsKv = "lengths_kv";

struct Attention {
  std::string name;
  Dims dims;
  DType dtype = DType::bf16;                           // of q, k, v and o
  std::map<std::string, Layout, std::less<>> layouts;  // "q", "k", "v", "o": all four present
  Align align = Align::top_left;
  std::vector<CapturedTensor> tensors;
  std::vector<Param> params;
  Dag dag;
  ExprId scale = 0;              // real; of dimensions, constants and params
  ExprId score = 0;              // real; the score modification, `score` itself when there is none
  std::vector<ExprId> masks;     // boolean; all must hold
  std::optional<ExprId> sink{};  // real; of the head, tensors, params and constants
  std::optional<Dropout> dropout{};
  bool lengths_q = false;   // then `tensors` has kLengthsQ
  bool lengths_kv = false;  // then `tensors` has kLengthsKv
  bool wants_o = true;
  bool wants_lse = false;
  bool wants_max = false;
  bool wants_sum_exp = false;
  bool wants_max_with_sink = false;  // only where there is a sink, as the next
  bool wants_sum_exp_with_sink = false;
  SourcePos statistics_pos{};            // of the first output among these four
  std::vector<std::string> gradients{};  // "q", "k", "v", learned tensors; empty: forward only
  bool deterministic = false;
  SourcePos pos;

  bool wants_max_or_sum() const {
    return wants_max || wants_sum_exp || wants_max_with_sink || wants_sum_exp_with_sink;
  }
  const CapturedTensor* find_tensor(std::string_view tensor) const;
  const Param* find_param(std::string_view param) const;
  // `wanted`, or a name that begins with it, of no tensor and no param.
  std::string unused_name(std::string wanted) const;
  // Scale, score, masks, sink, kept elements, extents, fallbacks, runs.
  std::vector<ExprId> roots() const;
  // The same places in the same order, to be set anew: what a pass does when it has a new dag.
  std::vector<ExprId*> root_places();
};

// The outputs by name, in the order in which they are listed and bound.
struct Output {
  std::string_view name;
  bool Attention::*wanted;
};
inline constexpr Output kOutputs[] = {{"o", &Attention::wants_o},
                                      {"lse", &Attention::wants_lse},
                                      {"max", &Attention::wants_max},
                                      {"sum_exp", &Attention::wants_sum_exp},
                                      {"max_with_sink", &Attention::wants_max_with_sink},
                                      {"sum_exp_with_sink", &Attention::wants_sum_exp_with_sink}};

// The type an element of this dtype has in expressions: bool -> boolean, integers -> integer,
// floats -> real.
Type value_type(DType dtype);

// The value of an expression of constants alone (what is left of dimension arithmetic once every
// dimension is bound), or nothing.
std::optional<std::int64_t> fold_integer(const Dag& dag, ExprId id);
// With these sizes for the dimensions in it.
std::optional<std::int64_t> fold_integer(const Dag& dag, ExprId id, const Dims& dims);
std::optional<double> fold_real(const Dag& dag, ExprId id);

// As to_source(dag, id), with `q_idx` for the row where that is what it is: aligned top left.
std::string to_source(const Attention& attention, ExprId id);

// Types, operand counts, symbols, extents, leaf positions (no score in a mask or in the scale, no
// index in the scale or in an extent), roots' types, sizes positive, Hq a multiple of Hkv. Run
// after the front end and after every pass; a failure is a bug (error `internal`).
Status verify(const Attention& attention);

// The textual form, which parse() reads back to an equal value (same text again). Only reachable
// nodes are printed, renumbered in order; positions are not. A text that does not fit is
// `invalid_argument`, its message starts with the line and its payload is {"line": n}.
std::string to_text(const Attention& attention);
Result<Attention> parse(std::string_view text);

// The same as JSON, positions included.
std::string to_json(const Attention& attention);

// A Markdown table of every op (docs/ir.md).
std::string op_reference();

}  // namespace attn::ir
