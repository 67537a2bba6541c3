// The operation graph of one cuDNN plan as plain data: what lowering makes, what is printed,
// hashed and stored in plan files, and what runtime/cudnn turns into descriptors. No cuDNN header
// is needed to read or write it.
//
// Dims and strides are in elements, always presented as [B, H, S, D] whatever the storage order.
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

using Uid = std::int64_t;

struct Tensor {
  Uid uid = 0;
  std::string name;  // for people: "q", "score", "" for intermediates; not hashed
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  Storage storage = Storage::virtual_value;
  std::int64_t alignment = 16;  // bytes
  // Where the elements of each batch begin, in elements: a device tensor i32 or i64 [B+1,1,1,1]
  // that replaces the stride of the batch. (Batch b ends where its own length says.)
  std::optional<Uid> ragged{};

  bool operator==(const Tensor&) const = default;
};

// c[..., m, n] = a[..., m, k] x b[..., k, n]; heads of b may divide those of a (GQA). The overrides
// are device tensors i32 [B,1,1,1]: each batch's own m, n, k, at most those of the dims. A product
// that is a graph by itself is [N,m,k] x [N,k,n] instead: cuDNN has no other engine for it.
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

enum class ReduceOp : std::uint8_t { max, add };

// y = op over the dimensions in which y has size 1 and x has not; over each group of heads where
// those of y divide those of x.
struct Reduction {
  ReduceOp op = ReduceOp::max;
  DType compute = DType::f32;
  Uid x = 0, y = 0;
  SourcePos pos;
  bool operator==(const Reduction&) const = default;
};

// y holds what x holds, element for element in memory order, read by y's own dims and strides and
// converted to its type. It transposes: x [..,m,n] strided [..,n,1], y [..,n,m] strided [..,1,n].
struct Reshape {
  Uid x = 0, y = 0;
  SourcePos pos;
  bool operator==(const Reshape&) const = default;
};

// y is 1 with probability `keep`, else 0, by Philox from device tensors i64 [1,1,1,1].
struct Rng {
  double keep = 1;
  Uid seed = 0, offset = 0, y = 0;
  SourcePos pos;
  bool operator==(const Rng&) const = default;
};

// y[b, h, s, d] = container[table[b, 0, s / page, 0], h, s % page, d] for s below lengths[b], where
// the container has dims [pages, H, page, D], the table i32 [B, 1, ceil(S / page), 1] and lengths
// i32 [B,1,1,1]. y may be presented as [B, H, D, S]: then its strides say so.
struct PagedLoad {
  Uid container = 0, table = 0, lengths = 0, y = 0;
  SourcePos pos;
  bool operator==(const PagedLoad&) const = default;
};

// y is x where the column lies within a bound of the row, else `fill` (f32, a host scalar):
//   right  row + bound >= column; without a bound 0
//   left   column + bound > row
// The bound is an i32 host scalar. With lengths, i32 [B,1,1,1], rows are counted from the last
// diagonal: row + lengths_kv - lengths_q stands for the row. cuDNN has this operation from 9.21 on,
// in the score nodes of an SdpaForward.
enum class BandSide : std::uint8_t { left, right };
struct BandMask {
  BandSide side = BandSide::right;
  Uid x = 0, fill = 0, y = 0;
  std::optional<Uid> bound{}, lengths_q{}, lengths_kv{};
  SourcePos pos;
  bool operator==(const BandMask&) const = default;
};

// o = dropout(softmax(score)) v by one operation of cuDNN's; score = scale * q k^T. The last node,
// and the only one of its kind. The nodes before it, if any, change the score: they make `modified`
// of `score`, virtual tensors of one value a score, both or neither given.
//
// q [B,H,Sq,Dqk], k [B,Hkv,Skv,Dqk], v [B,Hkv,Skv,Dv], o [B,H,Sq,Dv], stats f32 [B,H,Sq,1]; scale
// f32, one element (1 when absent). Lengths i32 [B,1,1,1], both or neither, hide what lies beyond.
// With a table, i32 [B,1,pages of a batch,1], k or v is a pool [pages,Hkv,page,D]. The sink f32
// [1,H,1,1] is one more score, without a value. Seed and offset i64 [1,1,1,1], with `dropout`.
struct SdpaForward {
  Uid q = 0, k = 0, v = 0, o = 0;
  std::optional<Uid> stats{};
  std::optional<Uid> score{}, modified{};
  std::optional<Uid> sink{};
#define ATTN_SDPA_INPUT(name, attribute) std::optional<Uid> name{};
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
  double dropout = 0;  // the probability with which a weight is dropped
  SourcePos pos;
  bool operator==(const SdpaForward&) const = default;
};

using Node =
    std::variant<Matmul, Pointwise, Reduction, Rng, PagedLoad, BandMask, SdpaForward, Reshape>;

struct BackendGraph {
  std::vector<Tensor> tensors;  // ascending uid
  std::vector<Node> nodes;      // in execution order: every input is defined before its use

  const Tensor* find(Uid uid) const;  // null when absent
  bool operator==(const BackendGraph&) const = default;
};

std::string_view to_string(PointwiseMode mode);
std::optional<PointwiseMode> parse_pointwise_mode(std::string_view text);
int input_count(PointwiseMode mode);
std::string_view to_string(ReduceOp op);
std::optional<ReduceOp> parse_reduce_op(std::string_view text);
std::string_view to_string(BandSide side);
std::optional<BandSide> parse_band_side(std::string_view text);
std::string_view to_string(Storage storage);
std::optional<Storage> parse_storage(std::string_view text);
SourcePos position_of(const Node& node);

// Whether it has what no graph of plan format 1 has: ragged tensors, overrides of a product's
// sizes, random numbers, paged loads, attention as one node, reshapes.
bool has_batch_control(const BackendGraph& graph);

// Every uid defined exactly once, operands defined before use, ranks 4, dims positive, arities and
// broadcasts right, virtual tensors produced by a node, host scalars one element; also: every
// tensor used by some node, its extent within 64 bits, boolean values where a mode makes or wants
// them. Errors: invalid_argument naming the node or tensor; payload {"node": 7} or {"uid": 12}.
Status validate(const BackendGraph& graph);

// One line for each tensor that is not virtual, then one line per node, for people and golden
// files:
//   %1 f32[1,1,1,1] host_scalar (scale)
//   %7 f32[2,8,128,256] = mul.f32 %6, %1 (scaled)
// The name in parentheses is that of the line's first tensor. Strides are shown unless row-major.
std::string to_text(const BackendGraph& graph);

// Complete, independent of names, positions and uid numbering (uids are renumbered in order of
// first use): what enters a plan's signature.
std::string canonical_text(const BackendGraph& graph);

// JSON text, lossless both ways (positions and names included). from_json checks the form only, so
// that a graph that validate refuses can still be stored and looked at. Errors: invalid_argument
// with the JSON path, as in "$.nodes[3].x: expected an integer".
std::string to_json(const BackendGraph& graph);
Result<BackendGraph> from_json(std::string_view json);

}  // namespace attn::graph
