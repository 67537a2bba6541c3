#include "runtime/cudnn/attempts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace attn::cudnn {
namespace {

using Json = nlohmann::ordered_json;

// A field that call_error() put into the error's payload.
std::string field(const Error& error, const char* name) {
  if (error.payload.empty()) return "";
  return Json::parse(error.payload).value(name, "");
}

std::string status_of(const Error& error) {
  const std::string status = field(error, "status");
  return status.empty() ? std::string(to_string(error.code)) : status;
}

std::string reason_of(const Error& error) {
  const std::string reason = field(error, "reason");
  return reason.empty() ? error.message : reason;
}

}  // namespace

void Attempts::saw(const Error& error) {
  if (error.code != ErrorCode::unsupported) only_refusals_ = false;
}

void Attempts::add_mode(const std::string& mode, const Result<std::vector<Descriptor>>& configs) {
  if (configs.ok()) {
    modes_.push_back({mode, configs->size(), "SUCCESS", ""});
    return;
  }
  saw(configs.error());
  modes_.push_back({mode, 0, status_of(configs.error()), reason_of(configs.error())});
}

void Attempts::add_config(const std::string& mode, const EngineChoice& choice, const Error& error) {
  saw(error);
  configs_.push_back({mode, choice, status_of(error), reason_of(error)});
}

Error Attempts::to_error() const {
  Error error;
  error.code = only_refusals_ ? ErrorCode::unsupported : ErrorCode::cudnn;
  error.message = configs_.empty()
                      ? "cuDNN offers no engine config for this graph"
                      : fmt::format("cuDNN made no plan of this graph: {} engine config{} failed",
                                    configs_.size(), configs_.size() == 1 ? "" : "s");
  error.notes = notes();
  error.payload = payload();
  return error;
}

std::vector<std::string> Attempts::notes() const {
  std::vector<std::string> notes;
  const auto add = [&notes](std::string note) {
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
  };
  for (const ModeRecord& mode : modes_) {
    if (mode.status != "SUCCESS") {
      add(fmt::format("heuristics {}: {}: {}", mode.mode, mode.status, mode.reason));
    }
  }
  for (const ConfigRecord& config : configs_) {
    add(fmt::format("engine {}: {}: {}", config.choice.engine, config.status, config.reason));
  }
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
    Json knobs = Json::object();
    for (const plan::Knob& knob : config.choice.knobs) {
      knobs[std::to_string(knob.type)] = knob.value;
    }
    configs.push_back({{"mode", config.mode},
                       {"engine", config.choice.engine},
                       {"knobs", std::move(knobs)},
                       {"status", config.status},
                       {"reason", config.reason}});
  }
  const Json payload = {{"stage", configs_.empty() ? "heuristics" : "plan"},
                        {"modes", std::move(modes)},
                        {"configs", std::move(configs)},
                        {"node", -1}};
  return payload.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace attn::cudnn
