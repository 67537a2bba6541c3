#include "tools/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "compiler/driver/support.h"
#include "compiler/support/text.h"
#include "tools/console.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

// An Error's payload is a JSON object by contract; anything else is dropped.
Json payload_of(const Error& error) {
  Json json = Json::parse(error.payload, nullptr, false);
  return json.is_object() ? json : Json::object();
}

std::optional<support::Place> place_of(const Json& payload) {
  const std::uint32_t line = payload.value("line", 0U);
  if (line == 0) return std::nullopt;
  return support::Place{line, payload.value("column", 1U)};
}

using support::Paint;
using support::Style;

constexpr std::size_t kWidth = 120;  // longer source lines are cut to this width around the caret

// The line with a caret below it, in the format of diagnostics.
std::string excerpt(const support::Source& source, support::Place place, Paint paint) {
  std::vector<std::string> cells;  // one per column
  for (std::string_view rest = source.line(place.line); !rest.empty();) {
    const std::string_view point = rest.substr(0, support::code_point_bytes(rest));
    cells.emplace_back(support::is_printable(point) ? point : " ");
    rest.remove_prefix(point.size());
  }
  const std::size_t caret = place.column - 1;
  const std::size_t from = cells.size() > kWidth && caret > kWidth / 2 ? caret - kWidth / 2 : 0;
  const std::size_t to = std::min(cells.size(), from + kWidth);
  std::string line;
  for (std::size_t i = from; i < to; ++i) line += cells[i];
  const std::string number = fmt::format("{}", place.line);
  const std::size_t gutter = number.size() + 1;
  const auto frame = [&](std::string_view left) {
    return paint(Style::frame, fmt::format("{:>{}} |", left, gutter));
  };
  return fmt::format("{:{}}{} {}:{}:{}\n{}\n{} {}\n{} {:{}}{}\n", "", gutter,
                     paint(Style::frame, "-->"), support::printable(source.name()), number,
                     place.column, frame(""), frame(number), line, frame(""), "",
                     std::min(caret, to) - from, paint(Style::error, "^"));
}

std::string knobs_text(const Json& knobs) {
  std::string text;
  for (const auto& [type, value] : knobs.items()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", type, value.dump());
  }
  return text;
}

// `by` names the strategy if there are several.
std::string configs_text(const Json& payload, const std::string& by) {
  if (!payload.contains("configs") || payload["configs"].empty()) return "";
  Table table({{"heuristic"}, {"engine", Align::right}, {"knobs"}, {"status"}, {"reason"}});
  for (const Json& config : payload["configs"]) {
    table.add({config.value("mode", ""), fmt::format("{}", config.value("engine", -1)),
               knobs_text(config.value("knobs", Json::object())), config.value("status", ""),
               config.value("reason", "")});
  }
  return fmt::format("engine configs tried{}:\n{}", by, table.to_text("  "));
}

std::string all_configs_text(const Json& payload) {
  if (!payload.contains("strategies")) return configs_text(payload, "");
  std::string text;
  for (const Json& tried : payload["strategies"]) {
    text += configs_text(tried.value("detail", Json::object()),
                         fmt::format(" (strategy {})", tried.value("strategy", "")));
  }
  return text;
}

// What cuDNN answers for engine configs (runtime/cudnn/attempts.cpp), which the tables have too.
bool is_of_configs(std::string_view note) {
  note.remove_prefix(std::min(note.find_first_not_of(' '), note.size()));
  for (const std::string_view begin : {"engine ", "engines "}) {
    const bool is_one = note.starts_with(begin) && note.size() > begin.size();
    if (is_one && note[begin.size()] >= '0' && note[begin.size()] <= '9') return true;
  }
  return false;
}

std::string note_text(const std::string& note, Paint paint) {
  return fmt::format("  {} {}: {}\n", paint(Style::frame, "="), paint(Style::help, "note"),
                     shown_lines(note));
}

std::string text_of(const Error& error, const support::Source* source, Paint paint, bool is_full) {
  const Json payload = payload_of(error);
  const std::optional<support::Place> place = place_of(payload);
  std::string text =
      fmt::format("{}{}\n", paint(Style::error, fmt::format("error[{}]", to_string(error.code))),
                  paint(Style::heading, ": " + shown_lines(error.message)));
  if (place && source != nullptr) text += excerpt(*source, *place, paint);
  const bool is_short = !is_full && !all_configs_text(payload).empty();
  for (const std::string& note : error.notes) {
    if (is_short && is_of_configs(note)) continue;
    text += note_text(note, paint);
  }
  if (!is_short) return text + all_configs_text(payload);
  return text + note_text("`--verbose` lists what cuDNN answers for each engine config", paint);
}

}  // namespace

std::string error_text(const Error& error, const support::Source* source, Paint paint) {
  return text_of(error, source, paint, is_verbose());
}

std::string full_error_text(const Error& error, const support::Source* source, Paint paint) {
  return text_of(error, source, paint, true);
}

Json error_json(const Error& error, const support::Source* source) {
  Json json = {{"code", to_string(error.code)}, {"message", error.message}, {"notes", error.notes}};
  if (source != nullptr) json["file"] = source->name();
  if (Json payload = payload_of(error); !payload.empty()) json["detail"] = std::move(payload);
  return json;
}

void print_diagnostics(const std::string& text) {
  static bool follows_others = false;
  if (text.empty()) return;
  tell((follows_others ? "\n" : "") + text);
  follows_others = true;
}

int report(const Error& error, Format format, const support::Source* source) {
  tell(error_text(error, source, error_paint()));
  print_data({{"error", error_json(error, source)}}, format);
  return exit_code(error.code);
}

std::vector<std::string> refusal_lines(const driver::Compiled& compiled) {
  std::vector<std::string> lines;
  for (const planner::Refusal& refusal : compiled.refused) {
    const bool failed = refusal.error.code != ErrorCode::unsupported;
    lines.push_back(fmt::format("strategy {}, since {} {}: {}", compiled.plan.strategy,
                                refusal.lowering, failed ? "failed" : "was refused",
                                driver::reason_of(refusal.error)));
  }
  return lines;
}

void tell_refusals(const driver::Compiled& compiled) {
  const bool backward = plan::direction_of(compiled.plan.program) == plan::Direction::backward;
  for (const std::string& line : refusal_lines(compiled)) {
    tell_note(fmt::format("{}{}: {}", compiled.plan.spec_name, backward ? " backward" : "", line));
  }
}

Json refusals_json(const std::vector<planner::Refusal>& refusals) {
  Json list = Json::array();
  for (const planner::Refusal& refusal : refusals) {
    list.push_back({{"strategy", refusal.lowering}, {"error", error_json(refusal.error, nullptr)}});
  }
  return list;
}

namespace {

// "composite (cudnn)"; only the name where both are the same.
std::string words_of(const std::string& lowering) {
  const std::string engine = planner::engine_name_of(lowering);
  return engine.empty() || engine == lowering ? shown(lowering)
                                              : fmt::format("{} ({})", shown(lowering), engine);
}

}  // namespace

std::vector<std::string> choice_lines(const plan::Plan& plan) {
  const bool alone = plan.choice.size() == 1 && !plan.choice.front().measured_ms;
  if (plan.choice.empty() || alone) return {};
  std::vector<std::string> ways;
  for (const plan::Alternative& way : plan.choice) {
    std::string text = words_of(way.strategy);
    if (way.predicted_ms > 0) text += fmt::format(", {:.3f} ms predicted", way.predicted_ms);
    if (way.measured_ms) text += fmt::format(", {:.3f} ms measured", *way.measured_ms);
    if (!way.refused.empty()) text += fmt::format(", not taken ({})", shown(way.refused));
    ways.push_back(std::move(text));
  }
  return {fmt::format("chosen: {}", fmt::join(ways, "; "))};
}

Json decision_json(const plan::Plan& plan) {
  const bool known = !plan.choice.empty();
  Json json = {{"strategy", plan.strategy},
               {"predicted_ms", known ? Json(plan.choice.front().predicted_ms) : Json(nullptr)},
               {"steps", Json::array()}};
  const std::string kernels =
      planner::has_own_kernels(plan.strategy) ? planner::engine_name_of(plan.strategy) : "kernels";
  for (const plan::Step& step : plan.program.steps) {
    const bool cudnn = std::holds_alternative<plan::CudnnStep>(step);
    json["steps"].push_back({{"engine", cudnn ? "cudnn" : kernels}});
  }
  return json;
}

Json choice_json(const plan::Plan& plan) {
  Json list = Json::array();
  for (const plan::Alternative& way : plan.choice) {
    Json json = {{"strategy", way.strategy}, {"predicted_ms", nullptr}};
    if (way.predicted_ms > 0) json["predicted_ms"] = way.predicted_ms;
    const std::string engine = planner::engine_name_of(way.strategy);
    if (!engine.empty()) json["engine"] = engine;
    if (way.measured_ms) json["measured_ms"] = *way.measured_ms;
    if (!way.refused.empty()) json["refused"] = way.refused;
    list.push_back(std::move(json));
  }
  return list;
}

void print_json(const Json& json) {
  put(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_json_line(const Json& json) {
  put_at_once(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_data(const Json& json, Format format) {
  if (format == Format::json) print_json(json);
  if (format == Format::json_lines) print_json_line(json);
}

}  // namespace attn::tools
