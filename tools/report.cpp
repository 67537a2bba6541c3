#include "tools/report.h"

#include <fmt/format.h>

#include <optional>

#include "compiler/support/text.h"
#include "tools/table.h"

namespace attn::tools {
namespace {

// An Error's payload is JSON text by contract; what is not is ours to leave out.
Json payload_of(const Error& error) {
  Json json = Json::parse(error.payload, nullptr, false);
  return json.is_object() ? json : Json::object();
}

std::optional<support::Place> place_of(const Json& payload) {
  const std::uint32_t line = payload.value("line", 0U);
  if (line == 0) return std::nullopt;
  return support::Place{line, payload.value("column", 1U)};
}

// The line with a caret below it, as diagnostics show theirs.
std::string excerpt(const support::Source& source, support::Place place) {
  const std::string number = fmt::format("{}", place.line);
  const std::size_t gutter = number.size() + 1;
  std::string text = fmt::format("{:{}}--> {}:{}:{}\n", "", gutter,
                                 support::printable(source.name()), place.line, place.column);
  std::string line, blank;
  std::uint32_t column = 1;
  for (std::string_view rest = source.line(place.line); !rest.empty(); ++column) {
    const std::string_view point = rest.substr(0, support::code_point_bytes(rest));
    line += support::is_printable(point) ? point : " ";
    if (column < place.column) blank += ' ';
    rest.remove_prefix(point.size());
  }
  return text + fmt::format("{0:{1}} |\n{2:>{1}} | {3}\n{0:{1}} | {4}^\n", "", gutter, number, line,
                            blank);
}

std::string knobs_text(const Json& knobs) {
  std::string text;
  for (const auto& [type, value] : knobs.items()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", type, value.dump());
  }
  return text;
}

std::string configs_text(const Json& payload) {
  if (!payload.contains("configs") || payload["configs"].empty()) return "";
  Table table({{"heuristic"}, {"engine", Align::right}, {"knobs"}, {"status"}, {"reason"}});
  for (const Json& config : payload["configs"]) {
    table.add({config.value("mode", ""), fmt::format("{}", config.value("engine", -1)),
               knobs_text(config.value("knobs", Json::object())), config.value("status", ""),
               config.value("reason", "")});
  }
  return "engine configs that were tried:\n" + table.to_text("  ");
}

}  // namespace

std::string error_text(const Error& error, const support::Source* source) {
  const Json payload = payload_of(error);
  const std::optional<support::Place> place = place_of(payload);
  std::string text = fmt::format("error[{}]: {}\n", to_string(error.code), error.message);
  if (place && source != nullptr) text += excerpt(*source, *place);
  for (const std::string& note : error.notes) text += fmt::format("  = note: {}\n", note);
  if (payload.contains("repro")) {
    text += fmt::format("  = help: `attnc worker < {}` repeats it\n", payload.value("repro", ""));
  }
  return text + configs_text(payload);
}

Json error_json(const Error& error, const support::Source* source) {
  Json json = {{"code", to_string(error.code)}, {"message", error.message}, {"notes", error.notes}};
  if (source != nullptr) json["file"] = source->name();
  if (Json payload = payload_of(error); !payload.empty()) json["detail"] = std::move(payload);
  return json;
}

int report(const Error& error, Format format, const support::Source* source) {
  fmt::print(stderr, "{}", error_text(error, source));
  if (format == Format::json) print_json({{"error", error_json(error, source)}});
  return exit_code(error.code);
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace attn::tools
