#include "runtime/cudnn/attempts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/cudnn/errors.h"

namespace attn::cudnn {
namespace {

using Json = nlohmann::ordered_json;

std::string status_of(const Error& error) {
  const std::string status = payload_field(error, "status");
  return status.empty() ? std::string(to_string(error.code)) : status;
}

std::string reason_of(const Error& error) {
  const std::string reason = payload_field(error, "reason");
  return reason.empty() ? error.message : reason;
}

Json knobs_json(const std::vector<plan::Knob>& knobs) {
  Json json = Json::object();
  for (const plan::Knob& knob : knobs) json[std::to_string(knob.type)] = knob.value;
  return json;
}

// The backward engine for sm_120 reports this, with an internal error status, for every graph that
// it does not support (9.19).
constexpr std::string_view kNoKnob = "No knob was found";

// A config that was not offered counts as unsupported, unless its reason says otherwise.
bool is_failure(const LastWords& words) {
  return !words.status.empty() && !is_refusal(words.status) && !words.reason.starts_with(kNoKnob);
}

// A distinct reason and the engines that gave it, in order of first appearance.
struct Group {
  std::string what;
  std::vector<std::int64_t> engines;
};

std::string note_of(const Group& group) {
  return fmt::format("engine{} {}: {}", group.engines.size() == 1 ? "" : "s",
                     fmt::join(group.engines, ", "), group.what);
}

}  // namespace

void Attempts::add_mode(const std::string& mode, const Result<Offer>& offer) {
  if (!offer.ok()) {
    if (offer.error().code != ErrorCode::unsupported) only_refusals_ = false;
    modes_.push_back({mode, 0, status_of(offer.error()), reason_of(offer.error())});
    return;
  }
  modes_.push_back({mode, offer->configs.size(), "SUCCESS", ""});
  for (const LastWords& words : offer->refused) {
    if (is_failure(words)) only_refusals_ = false;
    configs_.push_back({mode, false, words});
  }
}

void Attempts::add_config(const std::string& mode, const EngineChoice& choice, const Error& error) {
  if (error.code != ErrorCode::unsupported) only_refusals_ = false;
  configs_.push_back({mode, true, {choice, status_of(error), reason_of(error)}});
}

std::size_t Attempts::offered_count() const {
  return static_cast<std::size_t>(std::ranges::count(configs_, true, &ConfigRecord::offered));
}

Error Attempts::to_error() const {
  const std::size_t failed = offered_count();
  Error error;
  error.code = only_refusals_ ? ErrorCode::unsupported : ErrorCode::cudnn;
  error.message = failed == 0
                      ? "cuDNN offers no engine config for this graph"
                      : fmt::format(
                            "cuDNN could not build a plan for this graph: {} engine config{} "
                            "failed",
                            failed, failed == 1 ? "" : "s");
  error.notes = notes();
  error.payload = payload();
  return error;
}

std::vector<std::string> Attempts::notes() const {
  std::vector<std::string> notes;
  for (const ModeRecord& mode : modes_) {
    if (mode.status == "SUCCESS") continue;
    notes.push_back(fmt::format("heuristics {}: {}: {}", mode.mode, mode.status, mode.reason));
  }
  std::vector<Group> groups;
  for (const ConfigRecord& config : configs_) {
    const LastWords& words = config.words;
    std::string what = fmt::format("{}: {}", words.status, words.reason);
    auto group = std::ranges::find(groups, what, &Group::what);
    if (group == groups.end()) group = groups.insert(group, {std::move(what), {}});
    if (std::ranges::find(group->engines, words.choice.engine) == group->engines.end()) {
      group->engines.push_back(words.choice.engine);
    }
  }
  for (const Group& group : groups) notes.push_back(note_of(group));
  return notes;
}

std::string Attempts::payload() const {
  Json modes = Json::array();
  for (const ModeRecord& mode : modes_) {
    Json entry = {{"mode", mode.mode}, {"configs", mode.configs}, {"status", mode.status}};
    if (!mode.reason.empty()) entry["reason"] = mode.reason;
    modes.push_back(std::move(entry));
  }
  Json configs = Json::array();
  for (const ConfigRecord& config : configs_) {
    configs.push_back({{"mode", config.mode},
                       {"offered", config.offered},
                       {"engine", config.words.choice.engine},
                       {"knobs", knobs_json(config.words.choice.knobs)},
                       {"status", config.words.status},
                       {"reason", config.words.reason}});
  }
  const Json payload = {{"stage", offered_count() == 0 ? "heuristics" : "plan"},
                        {"modes", std::move(modes)},
                        {"configs", std::move(configs)},
                        {"node", -1}};
  return payload.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace attn::cudnn
