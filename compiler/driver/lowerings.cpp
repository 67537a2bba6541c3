#include "compiler/driver/lowerings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/lowering/common/internal_o.h"
#include "runtime/base/check.h"

namespace attn::driver {
namespace {

using Json = nlohmann::ordered_json;

constexpr Lowering kLowerings[] = {
#define ATTN_LOWERING(name, what) {#name, what, ways::name, ways::name##_backward},
#define ATTN_OTHER_LOWERING(name, what) \
  {#name, what, ways::name, ways::name##_backward, false, true},
#define ATTN_SLOW_LOWERING(name, what) {#name, what, ways::name, ways::name##_backward, true},
#include "compiler/driver/lowerings.def"
#undef ATTN_OTHER_LOWERING
#undef ATTN_SLOW_LOWERING
#undef ATTN_LOWERING
};
static_assert(std::ranges::is_sorted(kLowerings, {}, &Lowering::slow), "slow ones stand last");

Json payload_of(const Error& error) {
  Json payload = Json::parse(error.payload, nullptr, false);
  return payload.is_object() ? payload : Json::object();
}

Json to_json(const Refusal& refusal) {
  return {{"lowering", refusal.lowering},
          {"message", refusal.error.message},
          {"notes", refusal.error.notes},
          {"detail", payload_of(refusal.error)}};
}

}  // namespace

Result<Lowered> Lowering::lower(const ir::Attention& attention, plan::Direction direction,
                                passes::Rewrites made) const {
  if (direction == plan::Direction::backward) return backward(attention, made);
  if (attention.wants_o) return forward(attention, made);
  ATTN_ASSIGN(Lowered lowered, forward(lowering::with_o(attention), made));
  lowering::make_o_internal(lowered.program);
  return lowered;
}

std::span<const Lowering> lowerings(std::string_view name) {
  const std::span<const Lowering> all = kLowerings;
  if (name == kAnyOrSlow) return all;
  if (name == kAnyLowering) return all.first(std::ranges::count(all, false, &Lowering::slow));
  const auto* found = std::ranges::find(kLowerings, name, &Lowering::name);
  if (found == std::end(kLowerings)) return {};
  return {found, 1};
}

std::vector<std::string> lowering_names() {
  std::vector<std::string> names = {std::string(kAnyLowering)};
  for (const Lowering& lowering : kLowerings) names.emplace_back(lowering.name);
  return names;
}

Error error_of(const std::vector<Refusal>& refusals) {
  ATTN_CHECK(!refusals.empty(), "nothing was refused");
  Error error = refusals.front().error;
  if (refusals.size() == 1) return error;
  Json payload = payload_of(error);
  for (const Refusal& refusal : refusals) {
    payload["lowerings"].push_back(to_json(refusal));
    if (refusal.error.code != ErrorCode::unsupported) error.code = refusal.error.code;
    if (refusal.error.to_text() == refusals.front().error.to_text()) continue;
    error.notes.push_back(
        fmt::format("lowering `{}`: {}", refusal.lowering, refusal.error.message));
    for (const std::string& note : refusal.error.notes) error.notes.push_back("  " + note);
  }
  error.payload = payload.dump(-1, ' ', false, Json::error_handler_t::replace);
  return error;
}

bool may_try_another(const Error& error) {
  return error.code == ErrorCode::unsupported || error.code == ErrorCode::worker ||
         error.code == ErrorCode::cudnn;
}

std::vector<Refusal> in_order(std::vector<Refusal> refusals) {
  std::ranges::stable_sort(refusals, {}, [](const Refusal& refusal) {
    return std::ranges::find(kLowerings, refusal.lowering, &Lowering::name);
  });
  return refusals;
}

Result<std::vector<Candidate>> candidates(const ir::Attention& attention, std::string_view name,
                                          plan::Direction direction, std::vector<Refusal>& refused,
                                          passes::Rewrites made) {
  std::vector<Candidate> found;
  const std::span<const Lowering> ways = lowerings(name);
  for (const Lowering& way : ways) {
    Result<Lowered> lowered = way.lower(attention, direction, made);
    if (lowered.ok()) {
      found.push_back({&way, std::move(*lowered)});
      continue;
    }
    const bool stands = lowered.error().code != ErrorCode::unsupported;
    if (stands || !way.other || ways.size() == 1) {
      refused.push_back({std::string(way.name), lowered.error()});
    }
    if (stands) return error_of(refused);
  }
  if (found.empty()) return error_of(refused);
  std::ranges::stable_sort(found, {}, [](const Candidate& candidate) {
    return std::pair(candidate.way->slow, candidate.lowered.predicted_ms);
  });
  return found;
}

}  // namespace attn::driver
