#include "tools/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "compiler/ast/parse.h"

namespace attn::tools {
namespace {

using ir::Dim;

constexpr std::int64_t kMaxBatch = 2;
constexpr std::int64_t kMaxHeads = 8;

using Sizes = std::map<Dim, std::int64_t>;

std::int64_t size_or(const ir::Attention& attention, Dim dim, std::int64_t otherwise) {
  return attention.dims.get(dim).value_or(otherwise);
}

void scale_heads(const ir::Attention& attention, Sizes& sizes) {
  const std::int64_t query = size_or(attention, Dim::Hq, 4);
  const std::int64_t key = size_or(attention, Dim::Hkv, std::max<std::int64_t>(1, query / 2));
  const std::int64_t group = std::max<std::int64_t>(1, query / key);
  sizes[Dim::Hkv] = std::clamp<std::int64_t>(kMaxHeads / group, 1, key);
  sizes[Dim::Hq] = sizes[Dim::Hkv] * group;
}

// If both are known, they are scaled by the same factor, so that the diagonals aligned to the first
// and to the last row stay distinct.
void scale_lengths(const ir::Attention& attention, std::int64_t longest, Sizes& sizes) {
  constexpr std::int64_t kOpen = 256;
  const std::int64_t rows = size_or(attention, Dim::Sq, kOpen);
  const std::int64_t columns = size_or(attention, Dim::Skv, kOpen);
  const bool known = attention.dims.get(Dim::Sq) && attention.dims.get(Dim::Skv);
  const std::int64_t larger = known ? std::max({rows, columns, longest}) : longest;
  const auto scaled = [&](std::int64_t size) {
    // Skv may be 0.
    return std::clamp(size * longest / larger, std::min<std::int64_t>(1, size), longest);
  };
  sizes[Dim::Sq] = scaled(rows);
  sizes[Dim::Skv] = scaled(columns);
}

Sizes scaled_sizes(const ir::Attention& attention, std::int64_t longest) {
  Sizes sizes;
  sizes[Dim::B] = std::min(kMaxBatch, size_or(attention, Dim::B, kMaxBatch));
  scale_heads(attention, sizes);
  scale_lengths(attention, longest, sizes);
  for (const Dim dim : {Dim::Dqk, Dim::Dv}) sizes[dim] = size_or(attention, dim, 64);
  return sizes;
}

bool is_given(const sema::Bindings& given, Dim dim) {
  const bool head_dim = dim == Dim::Dqk || dim == Dim::Dv;
  return given.contains(std::string(to_string(dim))) || (head_dim && given.contains("D"));
}

std::optional<std::int64_t> integer_of(const ast::SpecParameter& parameter) {
  if (!parameter.value || parameter.value->kind != ast::ExprKind::number) return std::nullopt;
  const std::string& text = parameter.value->text;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void scale_parameters(const support::Source& source, const ir::Attention& attention,
                      std::int64_t columns, sema::Bindings& bindings) {
  const std::int64_t old_columns = size_or(attention, Dim::Skv, columns);
  diag::Sink sink(source);
  const std::optional<ast::Spec> spec = ast::parse(source, sink);
  if (!spec) return;  // not reached: the source parsed before
  for (const ast::SpecParameter& parameter : spec->parameters) {
    const std::optional<std::int64_t> value = integer_of(parameter);
    if (!value || *value <= columns || *value > old_columns) continue;
    bindings.emplace(parameter.name.text, fmt::format("{}", *value * columns / old_columns));
  }
}

Shape make_shape(std::string name, const support::Source& source, const ir::Attention& attention,
                 const sema::Bindings& given, const Sizes& sizes) {
  Shape shape{std::move(name), given};
  std::int64_t columns = sizes.at(Dim::Skv);
  for (const auto& [dim, size] : sizes) {
    if (!is_given(given, dim)) {
      shape.bindings.emplace(to_string(dim), fmt::format("{}", size));
    } else if (dim == Dim::Skv) {
      columns = size_or(attention, Dim::Skv, columns);
    }
  }
  scale_parameters(source, attention, columns, shape.bindings);
  return shape;
}

Sizes own_sizes(const ir::Attention& attention, Sizes sizes) {
  for (auto& [dim, size] : sizes) size = size_or(attention, dim, size);
  return sizes;
}

}  // namespace

std::vector<Shape> shapes_of(const support::Source& source, const ir::Attention& attention,
                             const sema::Bindings& given, ShapeSet set, std::int64_t longest) {
  const bool one_length = attention.layouts.find("q")->second.kind == ir::LayoutKind::packed_qkv;
  const std::int64_t odd_rows = longest / 4 + 1, odd_columns = longest + longest / 2 + 9;
  Sizes scaled = scaled_sizes(attention, longest);
  if (one_length) scaled[Dim::Skv] = scaled[Dim::Sq];
  if (set == ShapeSet::own) {
    return {make_shape("own", source, attention, given, own_sizes(attention, scaled))};
  }
  std::vector<Shape> shapes = {make_shape("scaled", source, attention, given, scaled)};
  if (set == ShapeSet::scaled) return shapes;
  Sizes odd = scaled;
  odd[Dim::B] = 2;
  odd[Dim::Sq] = odd_rows;
  odd[Dim::Skv] = one_length ? odd[Dim::Sq] : odd_columns;
  shapes.push_back(make_shape("odd", source, attention, given, odd));
  Sizes one_row = scaled;
  one_row[Dim::Sq] = 1;
  one_row[Dim::Skv] = one_length ? 1 : odd_columns;
  shapes.push_back(make_shape("one row", source, attention, given, one_row));
  return shapes;
}

}  // namespace attn::tools
