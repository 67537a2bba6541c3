#include "compiler/engines/shared/lengths.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "compiler/reference/defaults.h"
#include "compiler/rewrite/rebuild.h"

namespace attn::engines {
namespace {

using ir::Dim;

ir::LayoutKind kind_of(const ir::Attention& attention, std::string_view tensor) {
  return attention.layouts.find(tensor)->second.kind;
}

bool is_ragged(const ir::Attention& attention, std::string_view tensor) {
  return kind_of(attention, tensor) == ir::LayoutKind::thd;
}

// index < lengths
Value within(GraphBuilder& builder, std::int64_t axis, Uid lengths, Value score, SourcePos pos) {
  const Value index = builder.index(axis, score.uid, pos, DType::i32);
  return builder.element(PointwiseMode::cmp_lt, DType::boolean, DType::boolean, index,
                         Value{lengths, DType::i32, Place::tensor}, pos);
}

}  // namespace

std::int64_t captured_alignment(std::string_view name, DType dtype) {
  const bool is_scalar = (ir::is_scale(name) && dtype != DType::e8m0) || ir::is_amax(name);
  return name == ir::kLengthsQ || name == ir::kLengthsKv || is_scalar ? 4 : 16;
}

bool has_lengths(const ir::Attention& attention) {
  if (has_row_lengths(attention) || has_column_lengths(attention)) return true;
  return kind_of(attention, "k") == ir::LayoutKind::paged ||
         kind_of(attention, "v") == ir::LayoutKind::paged;
}

bool has_row_lengths(const ir::Attention& attention) {
  return attention.lengths_q || is_ragged(attention, "q") || is_ragged(attention, "o");
}

bool has_column_lengths(const ir::Attention& attention) {
  return attention.lengths_kv || is_ragged(attention, "k") || is_ragged(attention, "v");
}

bool ignores_row_lengths(const ir::Attention& attention) {
  return has_row_lengths(attention) && attention.dims[ir::Dim::Sq] == 1;
}

Lengths add_lengths(const ir::Attention& attention, GraphBuilder& builder) {
  if (!has_lengths(attention)) return {};
  const Dims4 dims{attention.dims[ir::Dim::B], 1, 1, 1};
  const auto add = [&](std::string_view name) {
    return builder.add_tensor(std::string(name), DType::i32, dims, {1, 1, 1, 1},
                              {.alignment = captured_alignment(name)});
  };
  return {add(ir::kLengthsQ), add(ir::kLengthsKv)};
}

Value mask_padding(GraphBuilder& builder, const Lengths& lengths, Value score, SourcePos pos) {
  if (!lengths.q || !lengths.kv) return score;
  const Value row = within(builder, 2, *lengths.q, score, pos);
  const Value column = within(builder, 3, *lengths.kv, score, pos);
  const Uid both = builder.add_scores(DType::boolean);
  builder.pointwise(PointwiseMode::logical_and, DType::boolean, row.uid, column.uid, both, pos);
  const Value hidden = builder.constant(DType::f32, -std::numeric_limits<double>::infinity());
  return builder.select({both, DType::boolean, Place::element}, score, hidden, pos);
}

namespace {

const ir::CapturedTensor* declared(const ir::Attention& attention, std::string_view name) {
  const ir::CapturedTensor* tensor = attention.find_tensor(name);
  return tensor != nullptr && tensor->fallback ? tensor : nullptr;
}

// Lengths of each batch.
std::vector<double> lengths(const ir::Attention& attention, bool has, std::string_view name,
                            Dim dim) {
  const auto batches = static_cast<std::size_t>(attention.dims[Dim::B]);
  const auto all = static_cast<double>(attention.dims[dim]);
  if (!has) return std::vector<double>(batches, all);
  if (const ir::CapturedTensor* tensor = declared(attention, name)) {
    // A default that is wrong is an error elsewhere.
    const auto values = reference::default_values(attention, *tensor);
    if (values.ok() && values->values.size() == batches) return values->values;
  }
  return std::vector<double>(batches, std::ceil(all / 2));
}

std::int64_t mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return std::llround(sum / static_cast<double>(values.size()));
}

// The group of each batch, for batches in ascending order of length. All groups have about as many
// keys, so a batch that is much longer than all others is a group by itself.
std::vector<std::size_t> groups_of(std::span<const double> keys) {
  double all = 0, before = 0;
  for (const double each : keys) all += each;
  std::vector<std::size_t> groups;
  for (const double each : keys) {
    const double share = all > 0 ? (before + each / 2) / all : 0;
    groups.push_back(std::min(kMostLengths - 1, static_cast<std::size_t>(share * kMostLengths)));
    before += each;
  }
  return groups;
}

}  // namespace

std::vector<BatchesOfLength> expected_lengths(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  if (!attention.lengths_q && !attention.lengths_kv) {
    return {{static_cast<double>(d[Dim::B]), d[Dim::Sq], d[Dim::Skv]}};
  }
  const std::vector<double> rows = lengths(attention, attention.lengths_q, ir::kLengthsQ, Dim::Sq);
  const std::vector<double> keys =
      lengths(attention, attention.lengths_kv, ir::kLengthsKv, Dim::Skv);
  if (rows.empty()) return {};
  std::vector<std::pair<double, double>> sorted;  // keys and rows
  for (std::size_t b = 0; b < rows.size(); ++b) sorted.emplace_back(keys[b], rows[b]);
  std::ranges::sort(sorted);
  std::vector<double> of_keys, of_rows;
  for (const auto& [key, row] : sorted) of_keys.push_back(key), of_rows.push_back(row);
  if (sorted.front() == sorted.back()) {
    return {{static_cast<double>(sorted.size()), mean(of_rows), mean(of_keys)}};
  }
  const std::vector<std::size_t> groups = groups_of(of_keys);
  std::vector<BatchesOfLength> result;
  for (std::size_t first = 0, last = 0; first < groups.size(); first = last) {
    while (last < groups.size() && groups[last] == groups[first]) ++last;
    const std::size_t count = last - first;
    result.push_back({static_cast<double>(count), mean(std::span(of_rows).subspan(first, count)),
                      mean(std::span(of_keys).subspan(first, count))});
  }
  return result;
}

double share_of_last_batch(const ir::Attention& attention) {
  if (!attention.lengths_kv) return 1;
  const std::vector<double> keys =
      lengths(attention, attention.lengths_kv, ir::kLengthsKv, Dim::Skv);
  const double longest = keys.empty() ? 0 : std::ranges::max(keys);
  return longest > 0 ? keys.back() / longest : 1;
}

bool assumes_lengths(const ir::Attention& attention) {
  return (attention.lengths_q && !declared(attention, ir::kLengthsQ)) ||
         (attention.lengths_kv && !declared(attention, ir::kLengthsKv));
}

ir::Attention of_length(const ir::Attention& attention, const BatchesOfLength& length) {
  ir::Attention result = rewrite::rebuilt(
      attention,
      [&](rewrite::SimplifyingBuilder&, ir::Dag& dag, ir::ExprId id,
          const std::vector<ir::ExprId>&) -> std::optional<ir::ExprId> {
        const ir::Node& node = attention.dag[id];
        if (!node.is(ir::Op::load_)) return std::nullopt;
        const std::string& tensor = attention.dag.symbol_of(id);
        const bool of_q = tensor == ir::kLengthsQ;
        if (!of_q && tensor != ir::kLengthsKv) return std::nullopt;
        return dag.add(ir::Op::const_int_, {}, of_q ? length.rows : length.keys, node.pos);
      });
  result.lengths_q = result.lengths_kv = false;
  result.dims.set(Dim::B, 1);
  result.dims.set(Dim::Sq, std::max<std::int64_t>(1, length.rows));
  result.dims.set(Dim::Skv, std::max<std::int64_t>(1, length.keys));
  return result;
}

}  // namespace attn::engines
