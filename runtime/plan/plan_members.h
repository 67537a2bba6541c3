// The members of a plan, as the manifest has them (members.h).
#pragma once

#include <algorithm>
#include <functional>
#include <limits>

#include "runtime/plan/container.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/program_members.h"

namespace attn::json {

template <>
inline constexpr auto kParse<plan::Dim> = &plan::parse_dim;

}  // namespace attn::json

namespace attn::plan {

inline constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 60;  // bytes per step

template <json::Like<Knob> Self, typename Visit>
void members(Self& knob, Visit& visit) {
  auto& [type, value] = knob;
  visit("type", type);
  visit("value", value);
}

template <json::Like<Target> Self, typename Visit>
void members(Self& target, Visit& visit) {
  auto& [name, sm, device_json] = target;
  visit("name", name);
  visit("sm", sm);
  visit("device", device_json);
}

template <json::Like<Alternative> Self, typename Visit>
void members(Self& way, Visit& visit) {
  auto& [strategy, predicted_ms, measured_ms, refused, signature] = way;
  visit("strategy", strategy);
  visit("predicted_ms", predicted_ms);
  visit.optional("measured_ms", measured_ms);
  visit.optional("refused", refused);
  visit.optional("signature", signature);
}

template <json::Like<CompiledStep> Self, typename Visit>
void members(Self& step, Visit& visit) {
  auto& [heuristic, engine, knobs, workspace_bytes, cudnn_plan] = step;
  visit("heuristic", heuristic);
  visit("engine", engine);
  visit("knobs", knobs);
  visit.within("workspace_bytes", workspace_bytes, 0, kMostWorkspace);
  visit.derived("plan_bytes", [&bytes = cudnn_plan] { return bytes.size(); });
  visit.derived("plan_hash", [&bytes = cudnn_plan] { return hash128(bytes).to_hex(); });
}

template <json::Like<Shape> Self, typename Visit>
void members(Self& shape, Visit& visit) {
  auto& [sizes, padded] = shape;
  visit.object("sizes", [&all = sizes](auto& inner) {
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    for (const Dim dim : kDims)
      inner.within(to_string(dim), all[dim], dim == Dim::Skv ? 0 : 1, kMost);
  });
  visit("padded", padded);
  const auto may_be = [](Dim dim) { return dim == Dim::B || dim == Dim::Sq || dim == Dim::Skv; };
  visit.must("padded",
             std::ranges::all_of(padded, may_be) &&
                 std::ranges::adjacent_find(padded, std::greater_equal()) == padded.end(),
             "is not one of B, Sq, Skv in this order");
}

template <json::Like<Plan> Self, typename Visit>
void members(Self& plan, Visit& visit) {
  auto& [spec_name, spec_text, bindings, shape, choice, strategy, without, parts, target,
         cudnn_version, nvrtc_version, program, compiled, kernels, signature] = plan;
  visit.constant("format", kFormatVersion);
  visit.object("spec", [&name = spec_name, &text = spec_text](auto& inner) {
    inner("name", name);
    inner("text", text);
  });
  visit.map("bindings", bindings, "name", "value");
  visit("shape", shape);
  visit.optional("choice", choice);
  visit("strategy", strategy);
  visit.optional("without", without);
  visit.optional("parts", parts);
  visit("target", target);
  visit("cudnn_version", cudnn_version);
  visit.optional("nvrtc_version", nvrtc_version);
  visit.derived("workspace_bytes", [&plan] { return plan.workspace_bytes(); });
  visit("program", program);
  visit("compiled", compiled);
  visit.derived("kernels", [&images = kernels] {
    nlohmann::ordered_json list;  // null without kernels
    for (const std::string& image : images)
      list.push_back({{"bytes", image.size()}, {"hash", hash128(image).to_hex()}});
    return list;
  });
  visit.derived("signature", [&hash = signature.hash] { return hash.to_hex(); });
}

}  // namespace attn::plan
