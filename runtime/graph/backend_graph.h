// The operation graph of one cuDNN plan as plain data. Lowering builds it; it is printed, hashed
// and stored in plan files; runtime/cudnn turns it into cuDNN descriptors. Needs no cuDNN header.
//
// Dims and strides are in elements, in the order [B, H, S, D] whatever the storage order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/source_pos.h"
#include "runtime/base/status.h"

namespace attn::graph {

enum class Storage : std::uint8_t {
  virtual_value,  // lives inside the fused kernel
  device,         // device memory bound at run time
  host_scalar,    // one element passed by value from host memory
};

// The order of a tensor's elements in memory beside its strides: f8_128x4 is that of block scales,
// in tiles of 512 bytes, each with 128 rows and 4 of the blocks in them; row r, block j of a tile
// is at 16 (r mod 32) + 4 (r / 32) + j.
enum class Reordering : std::uint8_t { none, f8_128x4 };

using Uid = std::int64_t;

struct Tensor {
  Uid uid = 0;
  std::string name;  // informational: "q", "score", "" for intermediates; not hashed
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  Storage storage = Storage::virtual_value;
  std::int64_t alignment = 16;  // bytes
  // Ragged offset: a device tensor, i32 or i64 [B+1,1,1,1], with the start of each batch in
  // elements. Replaces the batch stride. (The length of batch b gives its end.)
  std::optional<Uid> ragged{};
  Reordering reordering = Reordering::none;

  bool operator==(const Tensor&) const = default;
};

// c[..., m, n] = a[..., m, k] x b[..., k, n]; the heads of b may divide those of a (GQA). The
// overrides are device tensors, i32 [B,1,1,1], with each batch's m, n, k, at most the dims. A graph
// of a single product is [N,m,k] x [N,k,n] instead, because cuDNN has no other engine for it.
struct Matmul {
  Uid a = 0, b = 0, c = 0;
  DType compute = DType::f32;
  SourcePos pos;
  std::optional<Uid> m{}, n{}, k{};
  bool operator==(const Matmul&) const = default;
};

enum class PointwiseMode : std::uint8_t {
#define ATTN_POINTWISE(name, cudnn_mode, inputs) name,
#include "runtime/graph/pointwise.def"
#undef ATTN_POINTWISE
};

// y = mode(x[, b[, t]]), broadcasting dimensions of size 1. binary_select is t ? x : b.
struct Pointwise {
  PointwiseMode mode = PointwiseMode::identity;
  DType compute = DType::f32;
  Uid x = 0;
  std::optional<Uid> b;
  std::optional<Uid> t;
  Uid y = 0;
  std::optional<std::int64_t> axis;  // gen_index only: 2 = row, 3 = column
  SourcePos pos;
  bool operator==(const Pointwise&) const = default;
};

enum class ReduceOp : std::uint8_t { max, add, amax };  // amax: the largest magnitude

// y = op over the dimensions where y has size 1 and x does not; over each group of heads if the
// heads of y divide those of x.
struct Reduction {
  ReduceOp op = ReduceOp::max;
  DType compute = DType::f32;
  Uid x = 0, y = 0;
  SourcePos pos;
  bool operator==(const Reduction&) const = default;
};

// Reinterprets the elements of x, in memory order, with the dims and strides of y, and converts
// them to its type. Used to transpose: x [..,m,n] with strides [..,n,1], y [..,n,m] with strides
// [..,1,n].
struct Reshape {
  Uid x = 0, y = 0;
  SourcePos pos;
  bool operator==(const Reshape&) const = default;
};

// y = x times the scale of its block: `size` consecutive elements along the rows or the columns,
// the axis on which the scales, e8m0 in the order f8_128x4, are fewer. There may be more scales
// than blocks and rows: up to whole tiles.
struct BlockDequantize {
  Uid x = 0, scale = 0, y = 0;
  std::int64_t size = 32;
  SourcePos pos;
  bool operator==(const BlockDequantize&) const = default;
};

// y is 1 with probability `keep`, else 0, from Philox; seed and offset are device i64 [1,1,1,1].
struct Rng {
  double keep = 1;
  Uid seed = 0, offset = 0, y = 0;
  SourcePos pos;
  bool operator==(const Rng&) const = default;
};

// y[b, h, s, d] = container[table[b, 0, s / page, 0], h, s % page, d] for s < lengths[b]. The
// container has dims [pages, H, page, D], the table is i32 [B, 1, ceil(S / page), 1], the lengths
// are i32 [B,1,1,1]. y may also be [B, H, D, S], which its strides show.
struct PagedLoad {
  Uid container = 0, table = 0, lengths = 0, y = 0;
  SourcePos pos;
  bool operator==(const PagedLoad&) const = default;
};

// y is x where the column is within a bound of the row, else `fill` (f32, a host scalar):
//   right  row + bound >= column; without a bound 0
//   left   column + bound > row
// The bound is an i32 host scalar. With lengths, i32 [B,1,1,1], rows are aligned to the last
// diagonal: row + lengths_kv - lengths_q replaces row. cuDNN has this operation since 9.21, in the
// score nodes of an SdpaForward.
enum class BandSide : std::uint8_t { left, right };
struct BandMask {
  BandSide side = BandSide::right;
  Uid x = 0, fill = 0, y = 0;
  std::optional<Uid> bound{}, lengths_q{}, lengths_kv{};
  SourcePos pos;
  bool operator==(const BandMask&) const = default;
};

// o = dropout(softmax(score)) v as a single cuDNN operation; score = scale * q k^T. It must be the
// last node and the only one of its kind. Nodes before it, if any, compute `modified` from `score`;
// both are virtual tensors of score shape, and are given together or not at all.
//
// q [B,H,Sq,Dqk], k [B,Hkv,Skv,Dqk], v [B,Hkv,Skv,Dv], o [B,H,Sq,Dv], stats f32 [B,H,Sq,1]; scale
// f32, one element (1 if absent). Lengths, i32 [B,1,1,1], both or neither, mask padding. With a
// page table, i32 [B,1,pages per batch,1], k or v is a page pool [pages,Hkv,page,D]. The sink, f32
// [1,H,1,1], is one more score without a value. Seed and offset, i64 [1,1,1,1], come with
// `dropout`.
struct SdpaForward {
  Uid q = 0, k = 0, v = 0, o = 0;
  std::optional<Uid> stats{};
  std::optional<Uid> score{}, modified{};
  std::optional<Uid> sink{};
#define ATTN_SDPA_INPUT(name, attribute) std::optional<Uid> name{};
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
  double dropout = 0;  // probability of dropping a weight
  SourcePos pos;
  bool operator==(const SdpaForward&) const = default;
};

using Node = std::variant<Matmul, Pointwise, Reduction, Rng, PagedLoad, BandMask, SdpaForward,
                          Reshape, BlockDequantize>;

struct BackendGraph {
  std::vector<Tensor> tensors;  // ascending uid
  std::vector<Node> nodes;      // in execution order: every input is defined before its use

  const Tensor* find(Uid uid) const;  // null if absent
  bool operator==(const BackendGraph&) const = default;
};

std::string_view to_string(PointwiseMode mode);
std::optional<PointwiseMode> parse_pointwise_mode(std::string_view text);
int input_count(PointwiseMode mode);
std::string_view to_string(ReduceOp op);
std::optional<ReduceOp> parse_reduce_op(std::string_view text);
std::string_view to_string(BandSide side);
std::optional<BandSide> parse_band_side(std::string_view text);
std::string_view to_string(Reordering reordering);
std::optional<Reordering> parse_reordering(std::string_view text);
std::string_view to_string(Storage storage);
std::optional<Storage> parse_storage(std::string_view text);
SourcePos position_of(const Node& node);

// Checks that every uid is defined exactly once and before use, ranks are 4, dims are positive,
// arities and broadcasts are right, virtual tensors are produced by a node, host scalars have one
// element, every tensor is used, extents fit in 64 bits, and boolean operands are boolean. Errors:
// invalid_argument naming the node or tensor; payload {"node": 7} or {"uid": 12}.
Status validate(const BackendGraph& graph);

// Text for people and golden files: one line for each non-virtual tensor, then one for each node:
//   %1 f32[1,1,1,1] host_scalar (scale)
//   %7 f32[2,8,128,256] = mul.f32 %6, %1 (scaled)
// The name in parentheses is that of the line's tensor. Strides are shown unless row-major.
std::string to_text(const BackendGraph& graph);

// Canonical text for a plan's signature: complete, but independent of names, positions and uid
// numbers (uids are renumbered in order of first use).
std::string canonical_text(const BackendGraph& graph);

// JSON text, lossless in both directions (including positions and names). from_json checks only the
// form, so that graphs rejected by validate can still be stored and inspected. Errors:
// invalid_argument with the JSON path, as in "$.nodes[3].x: expected an integer".
std::string to_json(const BackendGraph& graph);
Result<BackendGraph> from_json(std::string_view json);

}  // namespace attn::graph
