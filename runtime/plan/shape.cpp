#include "runtime/plan/shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace attn::plan {

std::string_view to_string(Dim dim) {
  static constexpr std::string_view kNames[] = {"B", "Hq", "Hkv", "Sq", "Skv", "Dqk", "Dv"};
  return kNames[static_cast<std::size_t>(dim)];
}

std::optional<Dim> parse_dim(std::string_view text) {
  const auto* found = std::ranges::find(kDims, text, [](Dim dim) { return to_string(dim); });
  return found == kDims.end() ? std::nullopt : std::optional(*found);
}

std::string to_text(const Sizes& sizes, std::span<const Dim> dims) {
  std::string text;
  for (const Dim dim : dims) {
    if (!sizes.has(dim)) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", to_string(dim), sizes[dim]);
  }
  return text;
}

bool agree(const Sizes& some, const Sizes& all) {
  return std::ranges::all_of(kDims,
                             [&](Dim dim) { return !some.has(dim) || some[dim] == all[dim]; });
}

std::vector<Dim> varying(std::span<const Sizes> sizes) {
  std::vector<Dim> dims;
  for (const Dim dim : kDims) {
    const auto differs = [&](const Sizes& one) { return one[dim] != sizes.front()[dim]; };
    if (std::ranges::any_of(sizes, differs)) dims.push_back(dim);
  }
  return dims;
}

}  // namespace attn::plan
