// The members of a plan's parts, as the manifest has them (members.h).
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/plan/program_members.h"

namespace attn::plan {

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

}  // namespace attn::plan
