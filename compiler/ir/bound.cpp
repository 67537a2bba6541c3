#include "compiler/ir/bound.h"

#include <fmt/format.h>

#include <optional>

namespace attn::ir {
namespace {

const char* example_of(Dim dim) {
  switch (dim) {
    case Dim::B: return "1";
    case Dim::Hq:
    case Dim::Hkv: return "8";
    case Dim::Sq:
    case Dim::Skv: return "1024";
    default: return "64";
  }
}

// The dimension whose size this one has unless it gets its own.
std::optional<Dim> given_by(Dim dim) {
  switch (dim) {
    case Dim::Hkv: return Dim::Hq;
    case Dim::Skv: return Dim::Sq;
    case Dim::Dv: return Dim::Dqk;
    default: return std::nullopt;
  }
}

}  // namespace

Status check_bound(const Attention& attention) {
  std::string names, options;
  const auto add = [&](std::string_view name, Dim dim) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    options += fmt::format(" --bind {}={}", name, example_of(dim));
  };
  const auto is_open = [&](Dim dim) { return !attention.dims.get(dim); };
  const bool both = is_open(Dim::Dqk) && is_open(Dim::Dv);
  for (const Dim dim : kDims) {
    const std::optional<Dim> first = given_by(dim);
    if (!is_open(dim) || (first && is_open(*first))) continue;
    add(both && dim == Dim::Dqk ? "D" : to_string(dim), dim);
  }
  if (names.empty()) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("`{}` has no size for {}", attention.name, names),
               {"give sizes, as in" + options}};
}

}  // namespace attn::ir
