// The members of graphs, as JSON has them (members.h). Of a node they say which are tensors, too
// (operands.h); the `score` of an sdpa is neither input nor output.
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
  visit.input("a", a);
  visit.input("b", b);
  visit.output("c", c);
  visit("compute", compute);
  visit.named_input("m", m);
  visit.named_input("n", n);
  visit.named_input("k", k);
  visit.position(pos);
}

template <json::Like<Pointwise> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [mode, compute, x, b, t, y, axis, pos] = node;
  visit.kind("op", "pointwise");
  visit("mode", mode);
  visit("compute", compute);
  visit.input("x", x);
  visit.input("b", b);
  visit.input("t", t);
  visit.output("y", y);
  visit.optional("axis", axis);
  visit.position(pos);
}

template <json::Like<Reduction> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [op, compute, x, y, pos] = node;
  visit.kind("op", "reduction");
  visit("mode", op);
  visit("compute", compute);
  visit.input("x", x);
  visit.output("y", y);
  visit.position(pos);
}

template <json::Like<Reshape> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [x, y, pos] = node;
  visit.kind("op", "reshape");
  visit.input("x", x);
  visit.output("y", y);
  visit.position(pos);
}

template <json::Like<BlockDequantize> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [x, scale, y, size, pos] = node;
  visit.kind("op", "block_dequantize");
  visit.input("x", x);
  visit.input("scale", scale);
  visit("size", size);
  visit.output("y", y);
  visit.position(pos);
}

template <json::Like<Rng> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [keep, seed, offset, y, pos] = node;
  visit.kind("op", "rng");
  visit("keep", keep);
  visit.input("seed", seed);
  visit.input("offset", offset);
  visit.output("y", y);
  visit.position(pos);
}

template <json::Like<PagedLoad> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [container, table, lengths, y, pos] = node;
  visit.kind("op", "paged_load");
  visit.input("container", container);
  visit.input("table", table);
  visit.input("lengths", lengths);
  visit.output("y", y);
  visit.position(pos);
}

template <json::Like<BandMask> Self, typename Visit>
void members(Self& node, Visit& visit) {
  auto& [side, x, fill, y, bound, lengths_q, lengths_kv, pos] = node;
  visit.kind("op", "band_mask");
  visit("side", side);
  visit.input("x", x);
  visit.input("fill", fill);
  visit.output("y", y);
  visit.named_input("bound", bound);
  visit.named_input("lengths_q", lengths_q);
  visit.named_input("lengths_kv", lengths_kv);
  visit.position(pos);
}

template <json::Like<SdpaForward> Self, typename Visit>
void members(Self& node, Visit& visit) {
  visit.kind("op", "sdpa_forward");
  visit.input("q", node.q);
  visit.input("k", node.k);
  visit.input("v", node.v);
  visit.output("o", node.o);
  visit.output("stats", node.stats);
  visit.optional("score", node.score);
  visit.optional("dropout", node.dropout);
  visit.named_input("modified", node.modified);
  visit.named_input("sink", node.sink);
#define ATTN_SDPA_INPUT(name, attribute) visit.named_input(#name, node.name);
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
