#include "compiler/sharding/links.h"

#include <fmt/format.h>

#include <charconv>

namespace attn::sharding {
namespace {

constexpr double kArrives = 0.9;                   // of what a network has
constexpr double kSlowest = 1e-3, kFastest = 1e9;  // gigabytes a second

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

}  // namespace

Result<Link> parse_link(std::string_view text) {
  const Links known;
  if (text == known.inside.name) return known.inside;
  const bool in_gigabits = text.ends_with('g');
  const std::optional<double> value = number(in_gigabits ? text.substr(0, text.size() - 1) : text);
  const double gigabytes = value.value_or(0) * (in_gigabits ? kArrives / 8 : 1);
  if (!(gigabytes >= kSlowest && gigabytes < kFastest)) {
    return {ErrorCode::invalid_argument,
            fmt::format("`{}` is not a link: `nvlink`, gigabits a second as `400g`, or gigabytes a "
                        "second as `120`; at least {} gigabytes",
                        text, kSlowest)};
  }
  return Link{std::string(text), gigabytes, known.between.latency_ms};
}

}  // namespace attn::sharding
