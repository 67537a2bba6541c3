#include "runtime/cudnn/last_words.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace attn::cudnn {
namespace {

constexpr std::string_view kStatusPrefix = "CUDNN_STATUS_";
constexpr std::string_view kReasonPrefix = "; Reason: ";
constexpr std::string_view kKnobPrefix = "CUDNN_KNOB_TYPE_";
constexpr std::size_t kTextBytes = std::size_t{1} << 16;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Knobs missing in this build's cuDNN header have no number and are skipped.
std::optional<std::int64_t> knob_type(std::string_view name) {
  if (name.starts_with(kKnobPrefix)) name.remove_prefix(kKnobPrefix.size());
#define ATTN_KNOB(knob) \
  if (name == #knob) return static_cast<std::int64_t>(CUDNN_KNOB_TYPE_##knob);
#include "runtime/cudnn/knobs.def"
#undef ATTN_KNOB
  return std::nullopt;
}

std::optional<EngineChoice> parse_choice(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("engineId")) return std::nullopt;
  EngineChoice choice;
  if (json["engineId"].is_number_integer()) choice.engine = json["engineId"].get<std::int64_t>();
  if (!json.contains("knobChoices") || !json["knobChoices"].is_object()) return choice;
  for (const auto& [name, value] : json["knobChoices"].items()) {
    const auto type = knob_type(name);
    if (type && value.is_number_integer()) {
      choice.knobs.push_back({*type, value.get<std::int64_t>()});
    }
  }
  std::ranges::sort(choice.knobs, {}, &plan::Knob::type);
  return choice;
}

std::optional<LastWords> parse_reason(std::string_view line) {
  const std::size_t status = line.find(kStatusPrefix);
  const std::size_t reason = line.find(kReasonPrefix);
  if (status == std::string_view::npos || reason == std::string_view::npos || reason < status) {
    return std::nullopt;
  }
  const std::size_t name = status + kStatusPrefix.size();
  return LastWords{{},
                   std::string(line.substr(name, reason - name)),
                   std::string(line.substr(reason + kReasonPrefix.size()))};
}

std::string as_one_line(std::string_view text) {
  std::string line;
  for (const std::string_view part : lines_of(text)) {
    if (!line.empty()) line += ' ';
    line += part;
  }
  return line;
}

}  // namespace

std::string take_last_text(const Api& api) {
  std::string text(kTextBytes, '\0');
  api.cudnnGetLastErrorString(text.data(), text.size());
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

std::vector<LastWords> parse_last_words(std::string_view text) {
  std::vector<LastWords> all;
  EngineChoice choice;
  bool block_has_reason = false;
  for (const std::string_view line : lines_of(text)) {
    if (auto next = parse_choice(line)) {
      choice = std::move(*next);
      block_has_reason = false;
    } else if (auto words = parse_reason(line); words && !block_has_reason) {
      words->choice = choice;
      all.push_back(std::move(*words));
      block_has_reason = true;
    }
  }
  if (all.empty() && !lines_of(text).empty()) all.push_back({{}, "", as_one_line(text)});
  return all;
}

}  // namespace attn::cudnn
