#include "compiler/ir/bound.h"

#include <fmt/format.h>

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
    if (!is_open(dim) || (both && dim == Dim::Dv)) continue;
    add(both && dim == Dim::Dqk ? "D" : to_string(dim), dim);
  }
  if (names.empty()) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("`{}` has no size for {}", attention.name, names),
               {"give sizes, as in" + options},
               {}};
}

}  // namespace attn::ir
