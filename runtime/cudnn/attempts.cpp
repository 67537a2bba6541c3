#include "runtime/cudnn/attempts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
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

Result<Descriptor> make_device(const Api& api, const std::string& device_json) {
  // cuDNN reads a C string, so the terminating NUL is included.
  const std::span<const char> text(device_json.c_str(), device_json.size() + 1);
  Result<Descriptor> device =
      DescriptorBuilder(api, kDevicePropDescriptor).set_all(kDevicePropJson, text).finalize();
  if (device.ok()) return device;
  Error error = device.error();
  // Only BAD_PARAM means that the JSON is wrong; a missing part of cuDNN also fails here.
  if (payload_field(error, "status").starts_with("BAD_PARAM")) {
    error.code = ErrorCode::invalid_argument;
  }
  error.message = "the target's device properties: " + error.message;
  return error;
}

Result<Offer> engine_configs(const Api& api, const Descriptor& graph, const Descriptor& device,
                             cudnnBackendHeurMode_t mode) {
  take_last_text(api);  // drops errors of earlier calls
  ATTN_ASSIGN(const Descriptor heuristics, DescriptorBuilder(api, kEngineHeurDescriptor)
                                               .set(kEngineHeurGraph, graph)
                                               .set(kEngineHeurMode, mode)
                                               .set(kEngineHeurDeviceProp, device)
                                               .finalize());
  Offer offer;
  ATTN_ASSIGN(offer.configs,
              heuristics.get_descriptors(kEngineHeurResults, kEngineConfigDescriptor));
  offer.refused = parse_last_words(take_last_text(api));
  return offer;
}

namespace {

Result<Descriptor> make_engine(const Api& api, const Descriptor& graph, const Descriptor& device,
                               std::int64_t index) {
  return DescriptorBuilder(api, kEngineDescriptor)
      .set(kEngineGraph, graph)
      .set(kEngineGlobalIndex, index)
      .set(kEngineDeviceProp, device)
      .finalize();
}

Result<Descriptor> default_config(const Api& api, const Descriptor& graph, const Descriptor& device,
                                  std::int64_t index) {
  ATTN_ASSIGN(const Descriptor engine, make_engine(api, graph, device, index));
  return DescriptorBuilder(api, kEngineConfigDescriptor)
      .set(kEngineConfigEngine, engine)
      .finalize();
}

Result<Descriptor> config_of(const Api& api, const Descriptor& graph, const Descriptor& device,
                             const EngineChoice& choice) {
  ATTN_ASSIGN(const Descriptor engine, make_engine(api, graph, device, choice.engine));
  std::vector<Descriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const plan::Knob& knob : choice.knobs) {
    ATTN_ASSIGN(Descriptor made,
                DescriptorBuilder(api, kKnobChoiceDescriptor)
                    .set(kKnobChoiceType, static_cast<cudnnBackendKnobType_t>(knob.type))
                    .set(kKnobChoiceValue, knob.value)
                    .finalize());
    knobs.push_back(std::move(made));
    raw.push_back(knobs.back().raw());
  }
  return DescriptorBuilder(api, kEngineConfigDescriptor)
      .set(kEngineConfigEngine, engine)
      .set_all(kEngineConfigKnobChoices, raw)
      .finalize();
}

}  // namespace

Result<Offer> chosen(const Api& api, const Descriptor& graph, const Descriptor& device,
                     const EngineChoice& choice) {
  take_last_text(api);
  Offer offer;
  ATTN_ASSIGN(Descriptor config, config_of(api, graph, device, choice));
  offer.configs.push_back(std::move(config));
  return offer;
}

Result<Offer> every_engine(const Api& api, const Descriptor& graph, const Descriptor& device) {
  take_last_text(api);
  ATTN_ASSIGN(const std::int64_t count, graph.get(kOperationGraphEngineCount));
  Offer offer;
  for (std::int64_t index = 0; index < count; ++index) {
    Result<Descriptor> config = default_config(api, graph, device, index);
    if (config.ok()) offer.configs.push_back(std::move(config).value());
  }
  offer.refused = parse_last_words(take_last_text(api));
  return offer;
}

Result<EngineChoice> describe(const Descriptor& config) {
  ATTN_ASSIGN(const std::vector<Descriptor> engines,
              config.get_descriptors(kEngineConfigEngine, kEngineDescriptor));
  if (engines.size() != 1) {
    return Result<EngineChoice>(ErrorCode::cudnn, "cuDNN: an engine config has no engine");
  }
  EngineChoice choice;
  ATTN_ASSIGN(choice.engine, engines[0].get(kEngineGlobalIndex));
  ATTN_ASSIGN(const std::vector<Descriptor> knobs,
              config.get_descriptors(kEngineConfigKnobChoices, kKnobChoiceDescriptor));
  for (const Descriptor& knob : knobs) {
    ATTN_ASSIGN(const cudnnBackendKnobType_t type, knob.get(kKnobChoiceType));
    ATTN_ASSIGN(const std::int64_t value, knob.get(kKnobChoiceValue));
    choice.knobs.push_back({static_cast<std::int64_t>(type), value});
  }
  std::ranges::sort(choice.knobs, {}, &plan::Knob::type);
  return choice;
}

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
