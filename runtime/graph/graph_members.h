// The members of graphs, as JSON has them (members.h).
#pragma once

#include "runtime/graph/backend_graph.h"
#include "runtime/graph/members.h"

namespace attn::json {

template <>
inline constexpr auto kParse<graph::Storage> = &graph::parse_storage;
template <>
inline constexpr auto kParse<graph::Reordering> = &graph::parse_reordering;
template <>
inline constexpr auto kParse<graph::PointwiseMode> = &graph::parse_pointwise_mode;
template <>
inline constexpr auto kParse<graph::ReduceOp> = &graph::parse_reduce_op;
template <>
inline constexpr auto kParse<graph::BandSide> = &graph::parse_band_side;

}  // namespace attn::json

namespace attn::graph {

template <json::Like<Tensor> Self, typename Visit>
void members(Self& tensor, Visit& visit) {
  auto& [uid, name, dtype, dims, strides, storage, alignment, ragged, reordering] = tensor;
  visit("uid", uid);
  visit.told("name", name);
  visit("dtype", dtype);
  visit("dims", dims);
  visit("strides", strides);
  visit("storage", storage);
  visit("alignment", alignment);
  visit.optional("ragged", ragged);
  visit.optional("reordering", reordering);
}

template <json::Like<Matmul> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [a, b, c, compute, pos, m, n, k] = node;
  visit.kind("op", "matmul");
  visit("a", a);
  visit("b", b);
  visit("c", c);
  visit("compute", compute);
  visit.optional("m", m);
  visit.optional("n", n);
  visit.optional("k", k);
  visit.position(pos);
}

template <json::Like<Pointwise> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [mode, compute, x, b, t, y, axis, pos] = node;
  visit.kind("op", "pointwise");
  visit("mode", mode);
  visit("compute", compute);
  visit("x", x);
  visit.optional("b", b);
  visit.optional("t", t);
  visit("y", y);
  visit.optional("axis", axis);
  visit.position(pos);
}

template <json::Like<Reduction> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [op, compute, x, y, pos] = node;
  visit.kind("op", "reduction");
  visit("mode", op);
  visit("compute", compute);
  visit("x", x);
  visit("y", y);
  visit.position(pos);
}

template <json::Like<Reshape> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [x, y, pos] = node;
  visit.kind("op", "reshape");
  visit("x", x);
  visit("y", y);
  visit.position(pos);
}

template <json::Like<BlockDequantize> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [x, scale, y, size, pos] = node;
  visit.kind("op", "block_dequantize");
  visit("x", x);
  visit("scale", scale);
  visit("size", size);
  visit("y", y);
  visit.position(pos);
}

template <json::Like<Rng> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [keep, seed, offset, y, pos] = node;
  visit.kind("op", "rng");
  visit("keep", keep);
  visit("seed", seed);
  visit("offset", offset);
  visit("y", y);
  visit.position(pos);
}

template <json::Like<PagedLoad> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [container, table, lengths, y, pos] = node;
  visit.kind("op", "paged_load");
  visit("container", container);
  visit("table", table);
  visit("lengths", lengths);
  visit("y", y);
  visit.position(pos);
}

template <json::Like<BandMask> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [side, x, fill, y, bound, lengths_q, lengths_kv, pos] = node;
  visit.kind("op", "band_mask");
  visit("side", side);
  visit("x", x);
  visit("fill", fill);
  visit("y", y);
  visit.optional("bound", bound);
  visit.optional("lengths_q", lengths_q);
  visit.optional("lengths_kv", lengths_kv);
  visit.position(pos);
}

template <json::Like<SdpaForward> Self, typename Visit>
void members(Self& node, Visit& visit) {
  visit.kind("op", "sdpa_forward");
  visit("q", node.q);
  visit("k", node.k);
  visit("v", node.v);
  visit("o", node.o);
  visit.optional("stats", node.stats);
  visit.optional("score", node.score);
  visit.optional("dropout", node.dropout);
  visit.optional("modified", node.modified);
  visit.optional("sink", node.sink);
#define ATTN_SDPA_INPUT(name, attribute) visit.optional(#name, node.name);
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
  visit.position(node.pos);
}

template <json::Like<BackendGraph> Self, typename Visit>
void members(Self& graph, Visit& visit) {
  auto& [tensors, nodes] = graph;
  visit("tensors", tensors);
  visit("nodes", nodes);
}

}  // namespace attn::graph
