#include "compiler/sharding/links.h"

#include <fmt/format.h>

#include <charconv>

namespace attn::sharding {
namespace {

constexpr double kArrives = 0.9;  // of what a network has

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value > 0 && value < 1e9 ? std::optional(value) : std::nullopt;
}

}  // namespace

Result<Link> parse_link(std::string_view text) {
  const Links known;
  if (text == known.inside.name) return known.inside;
  const bool in_gigabits = text.ends_with('g');
  const std::optional<double> value = number(in_gigabits ? text.substr(0, text.size() - 1) : text);
  if (!value) {
    return {ErrorCode::invalid_argument,
            fmt::format("`{}` is no link: `nvlink`, gigabits a second as `400g`, or gigabytes a "
                        "second as `120`",
                        text)};
  }
  return Link{std::string(text), in_gigabits ? *value / 8 * kArrives : *value,
              known.between.latency_ms};
}

}  // namespace attn::sharding
