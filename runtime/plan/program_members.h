// The members of programs, as JSON has them (members.h): what to_json, program_from_json and
// canonical_text know of them.
#pragma once

#include "runtime/graph/graph_members.h"
#include "runtime/plan/program.h"

namespace attn::json {

template <>
inline constexpr auto kParse<plan::TensorRole> = &plan::parse_tensor_role;

}  // namespace attn::json

namespace attn::plan {

template <json::Like<TensorInfo> Self, typename Visit>
void members(Self& tensor, Visit& visit) {
  auto& [name, role, dtype, dims, strides, alignment, addressed_by, bound_strides, rows] = tensor;
  visit("name", name);
  visit("role", role);
  visit("dtype", dtype);
  visit("dims", dims);
  visit("strides", strides);
  visit("alignment", alignment);
  visit.optional("addressed_by", addressed_by);
  visit.optional("bound_strides", bound_strides);
  visit.optional("rows", rows);
}

template <json::Like<ParamInfo> Self, typename Visit>
void members(Self& param, Visit& visit) {
  auto& [name, dtype] = param;
  visit("name", name);
  visit("dtype", dtype);
}

template <json::Like<TensorOperand> Self, typename Visit>
void members(Self& operand, Visit& visit) {
  auto& [name, offset, advance] = operand;
  visit("tensor", name);
  visit.optional("offset", offset);
  visit.optional("advance", advance);
}

template <json::Like<ConstantOperand> Self, typename Visit>
void members(Self& operand, Visit& visit) {
  auto& [dtype, value] = operand;
  visit("constant", value);
  visit("dtype", dtype);
}

template <json::Like<ParamOperand> Self, typename Visit>
void members(Self& operand, Visit& visit) {
  auto& [name] = operand;
  visit("param", name);
}

template <json::Like<IotaOperand> Self, typename Visit>
void members(Self& operand, Visit& visit) {
  auto& [count] = operand;
  visit("counting", count);
}

template <json::Like<Operand> Self, typename Visit>
void members(Self& operand, Visit& visit) {
  auto& [uid, source] = operand;
  visit("uid", uid);
  visit.spread(source);
}

template <json::Like<CudnnStep> Self, typename Visit>
void members(Self& step, Visit& visit) {
  auto& [graph, operands, turns] = step;
  visit.kind("step", "cudnn");
  visit("operands", operands);
  visit("graph", graph);
  visit.optional("turns", turns, 1);
}

void write_canonical(json::Writer& writer, const CudnnStep& step);

template <json::Like<DeriveStep> Self, typename Visit>
void members(Self& step, Visit& visit) {
  auto& [once, outputs, expressions, inputs, source, amends, turns] = step;
  visit.kind("step", "derive");
  visit("once", once);
  visit.paired("outputs", "tensor", outputs, "expression", expressions);
  visit("inputs", inputs);
  visit("source", source);
  visit.optional("amends", amends);
  visit.optional("turns", turns, 1);
}

template <json::Like<TensorMapArgument> Self, typename Visit>
void members(Self& map, Visit& visit) {
  auto& [tensor, dims, strides, box, swizzle, promotion, axes, packed] = map;
  visit("map", tensor);
  visit("dims", dims);
  visit("strides", strides);
  visit("box", box);
  visit("swizzle", swizzle);
  visit.optional("promotion", promotion, 256);
  visit.optional("axes", axes);
  visit.optional("packed", packed);
}

template <json::Like<StrideArgument> Self, typename Visit>
void members(Self& stride, Visit& visit) {
  auto& [tensor, axis, in_steps] = stride;
  visit("stride", tensor);
  visit("axis", axis);
  visit.optional("in_steps", in_steps);
}

template <json::Like<Launch> Self, typename Visit>
void members(Self& launch, Visit& visit) {
  auto& [kernel, grid, block, cluster, shared_bytes, overlaps, arguments] = launch;
  visit("kernel", kernel);
  visit("grid", grid);
  visit("block", block);
  visit("cluster", cluster);
  visit("shared_bytes", shared_bytes);
  visit("arguments", arguments);
  visit.optional("overlaps", overlaps);
}

template <json::Like<BlockCounts> Self, typename Visit>
void members(Self& counts, Visit& visit) {
  auto& [lists, full, partial, skipped] = counts;
  visit("lists", lists);
  visit("full", full);
  visit("partial", partial);
  visit("skipped", skipped);
}

template <json::Like<KernelFacts> Self, typename Visit>
void members(Self& facts, Visit& visit) {
  auto& [backward, launch, tile, block, heads, depth, width, groups, stages, query_stages,
         table_stages, parts, items, divided, patch_width, patch_height, has_lengths, gathers,
         makes_lists, has_band, has_schedule, lists_of_batch, lists_of_head, blocks] = facts;
  visit("tile", tile);
  visit("block", block);
  visit("depth", depth);
  visit("width", width);
  visit("groups", groups);
  visit("stages", stages);
  visit("items", items);
  visit.optional("backward", backward);
  visit.optional("launch", launch);
  visit.optional("heads", heads, 1);
  visit.optional("query_stages", query_stages);
  visit.optional("table_stages", table_stages);
  visit.optional("parts", parts, 1);
  visit.optional("divided", divided);
  visit.optional("patch_width", patch_width);
  visit.optional("patch_height", patch_height);
  visit.optional("has_lengths", has_lengths);
  visit.optional("gathers", gathers);
  visit.optional("makes_lists", makes_lists);
  visit.optional("has_band", has_band);
  visit.optional("has_schedule", has_schedule);
  visit.optional("lists_of_batch", lists_of_batch);
  visit.optional("lists_of_head", lists_of_head);
  visit.optional("blocks", blocks);
}

template <json::Like<Schedule> Self, typename Visit>
void members(Self& schedule, Visit& visit) {
  auto& [tensor, options, parts, slots, slot_words, slot_elements, sequences, units, tile_rows,
         tile_keys, shares_keys, unshared] = schedule;
  visit("tensor", tensor);
  visit("options", options);
  visit("parts", parts);
  visit("slots", slots);
  visit("slot_words", slot_words);
  visit("slot_elements", slot_elements);
  visit("sequences", sequences);
  visit("units", units);
  visit("tile_rows", tile_rows);
  visit("tile_keys", tile_keys);
  visit.optional("shares_keys", shares_keys);
  visit.optionally_told("unshared", unshared);
}

template <json::Like<KernelStep> Self, typename Visit>
void members(Self& step, Visit& visit) {
  auto& [outputs, zeroed, launches, source, turns, facts, schedule] = step;
  visit.kind("step", "kernel");
  visit("outputs", outputs);
  visit("zeroed", zeroed);
  visit("launches", launches);
  visit("source", source);
  visit.optional("turns", turns, 1);
  visit.optionally_told("facts", facts);
  visit.optional("schedule", schedule);
}

template <json::Like<IndexCheck::Fault> Self, typename Visit>
void members(Self& fault, Visit& visit) {
  auto& [expression, what] = fault;
  visit.told("expression", expression);
  visit.told("what", what);
}

template <json::Like<IndexCheck> Self, typename Visit>
void members(Self& check, Visit& visit) {
  auto& [faults, inputs, quick, scores, source] = check;
  visit("faults", faults);
  visit("inputs", inputs);
  visit("quick", quick);
  visit("scores", scores);
  visit("source", source);
}

template <json::Like<Program> Self, typename Visit>
void members(Self& program, Visit& visit) {
  auto& [tensors, params, internals, steps, check] = program;
  visit("tensors", tensors);
  visit("params", params);
  visit("steps", steps);
  visit.optional("internals", internals);
  visit.optional("check", check);
}

}  // namespace attn::plan
