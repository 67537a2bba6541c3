#include "runtime/cudnn/engine_configs.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/cudnn/errors.h"

namespace attn::cudnn {

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

}  // namespace attn::cudnn
