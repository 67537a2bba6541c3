#include "compiler/reference/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "compiler/reference/operation.h"
#include "runtime/io/element.h"

namespace attn::reference {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

// A value as its bits, and whether there is one. Compared as numbers, a NaN has no place in an
// order and 0 is the same as -0.
using Bits = std::pair<bool, std::uint64_t>;

Bits bits_of(std::optional<double> value) {
  return value ? Bits(true, std::bit_cast<std::uint64_t>(*value)) : Bits(false, 0);
}

// Evaluates the nodes below a root, one element at a time, and those that are the same along the
// last axis once for a row of elements.
class ElementEvaluator {
 public:
  ElementEvaluator(const ir::Attention& attention, ExprId root, std::size_t rank)
      : attention_(attention), root_(root), values_(attention.dag.size()) {
    const ExprId roots[] = {root};
    std::vector<bool> varies(attention.dag.size()), passes_on(attention.dag.size());
    for (const ExprId id : ir::reachable(attention.dag, roots)) {
      const ir::Node& node = attention.dag[id];
      varies[id] = node.is(Op::index_) &&
                   std::get<std::int64_t>(node.attribute) + 1 == static_cast<std::int64_t>(rank);
      for (const ExprId operand : node.operands) varies[id] = varies[id] || varies[operand];
      (varies[id] ? of_element_ : of_row_).push_back(id);
      for (const ExprId operand : node.operands)
        passes_on[operand] = passes_on[operand] || varies[id];
    }
    passes_on[root] = true;
    for (const ExprId id : of_row_) {
      if (passes_on[id]) tells_.push_back(id);
    }
  }

  // What tells a row from others: rows with equal ones are equal.
  std::vector<Bits> begin_row(const std::vector<std::int64_t>& indexes) {
    for (const ExprId id : of_row_) values_[id] = evaluate(attention_.dag[id], indexes);
    std::vector<Bits> bits;
    for (const ExprId id : tells_) bits.push_back(bits_of(values_[id]));
    return bits;
  }

  // An element of the row that was begun.
  std::optional<double> element(const std::vector<std::int64_t>& indexes) {
    for (const ExprId id : of_element_) values_[id] = evaluate(attention_.dag[id], indexes);
    return values_[root_];
  }

 private:
  std::optional<double> evaluate(const ir::Node& node,
                                 const std::vector<std::int64_t>& indexes) const {
    switch (node.op) {
      case Op::index_: {
        const auto axis = static_cast<std::size_t>(std::get<std::int64_t>(node.attribute));
        return static_cast<double>(indexes[axis]);
      }
      case Op::const_bool_: return std::get<bool>(node.attribute) ? 1 : 0;
      case Op::const_int_: return static_cast<double>(std::get<std::int64_t>(node.attribute));
      case Op::const_wide_: return as_bits(std::get<std::int64_t>(node.attribute));
      case Op::const_real_: return std::get<double>(node.attribute);
      case Op::dim_:
        return static_cast<double>(
            attention_.dims[*ir::parse_dim(std::get<std::string>(node.attribute))]);
      case Op::select_: {
        const auto condition = values_[node.operands[0]];
        return condition ? values_[node.operands[*condition != 0 ? 1 : 2]] : std::nullopt;
      }
      case Op::and_:
      case Op::or_: return logic(node);
      default: return compute(node);
    }
  }

  // One operand may decide alone.
  std::optional<double> logic(const ir::Node& node) const {
    const double deciding = node.is(Op::and_) ? 0 : 1;
    const auto& x = values_[node.operands[0]];
    const auto& y = values_[node.operands[1]];
    if (x == deciding || y == deciding) return deciding;
    return x ? y : x;
  }

  std::optional<double> compute(const ir::Node& node) const {
    std::array<double, 2> operands{};
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const auto& value = values_[node.operands[i]];
      if (!value) return std::nullopt;
      operands[i] = *value;
    }
    const ir::Type type = attention_.dag[node.operands[0]].type;
    return operation(node.op, type, std::span(operands).first(node.operands.size()));
  }

  const ir::Attention& attention_;
  ExprId root_;
  std::vector<ExprId> of_row_, of_element_;
  std::vector<ExprId> tells_;  // those of a row that elements, or the root, read
  std::vector<std::optional<double>> values_;
};

Result<std::vector<std::int64_t>> dims_of(const ir::Attention& attention,
                                          const ir::CapturedTensor& tensor) {
  std::vector<std::int64_t> dims;
  for (const ExprId extent : tensor.extents) {
    const auto size = ir::fold_integer(attention.dag, extent, attention.dims);
    if (!size) {
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("{}: the extent {} is open", tensor.name, to_source(attention, extent))};
    }
    dims.push_back(*size);
  }
  return dims;
}

// Whether the tensor can hold the value of its default.
bool is_element(DType dtype, double value) {
  return is_float(dtype) || dtype == DType::i64 || io::fits(dtype, value);
}

// Makes a tensor from the values of a default, of which there may be too few.
io::HostTensor tensor_of(DType dtype, const std::vector<std::int64_t>& dims,
                         std::vector<double> values) {
  if (dtype != DType::i64) return {dtype, dims, std::move(values)};
  std::vector<std::int64_t> elements;
  for (const double value : values) elements.push_back(wide_of(value));
  return io::tensor_of_wide(dims, std::move(elements));
}

// Advances to the next row.
void step(std::vector<std::int64_t>& indexes, const std::vector<std::int64_t>& dims) {
  indexes.back() = 0;
  for (std::size_t axis = dims.size() - 1; axis-- > 0;) {
    if (++indexes[axis] < dims[axis]) return;
    indexes[axis] = 0;
  }
}

}  // namespace

Result<EvaluatedDefault> evaluate_default(const ir::Attention& attention,
                                          const ir::CapturedTensor& tensor, std::size_t most) {
  constexpr std::int64_t kLong = 64;  // elements of a row that is worth remembering
  ATTN_ASSIGN(const std::vector<std::int64_t> dims, dims_of(attention, tensor));
  EvaluatedDefault result{{tensor.dtype, dims, {}}, {}};
  std::vector<double> values;
  const std::size_t count = std::min(most, static_cast<std::size_t>(io::element_count(dims)));
  values.reserve(count);
  // A tensor without axes is a row of one element.
  std::vector<std::int64_t> shape = dims;
  if (shape.empty()) shape.push_back(1);
  ElementEvaluator evaluator(attention, *tensor.fallback, shape.size());
  std::map<std::vector<Bits>, std::size_t> rows;  // where they begin
  std::vector<double> again;
  std::vector<std::int64_t> indexes(shape.size(), 0);
  while (values.size() < count) {
    const std::size_t begin = values.size();
    const auto width =
        std::min<std::int64_t>(shape.back(), static_cast<std::int64_t>(count - begin));
    const auto row = evaluator.begin_row(indexes);
    if (const auto known = rows.find(row); known != rows.end()) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(known->second);
      again.assign(first, first + width);
      values.insert(values.end(), again.begin(), again.end());
      step(indexes, shape);
      continue;
    }
    for (indexes.back() = 0; indexes.back() < width; ++indexes.back()) {
      const std::optional<double> value = evaluator.element(indexes);
      if (!value || !is_element(tensor.dtype, *value)) {
        result.bad = {value};
        break;
      }
      values.push_back(*value);
    }
    if (result.bad) break;
    if (shape.back() >= kLong) rows.emplace(row, begin);
    step(indexes, shape);
  }
  result.values = tensor_of(tensor.dtype, dims, std::move(values));
  return result;
}

Result<io::HostTensor> default_values(const ir::Attention& attention,
                                      const ir::CapturedTensor& tensor) {
  ATTN_ASSIGN(EvaluatedDefault evaluated, evaluate_default(attention, tensor));
  if (!evaluated.bad) return std::move(evaluated.values);
  return {ErrorCode::binding,
          fmt::format("the default of {} gives no valid {} for element {}", tensor.name,
                      to_string(tensor.dtype), evaluated.values.values.size())};
}

namespace {

std::optional<BrokenFact> outside_dimension(const ir::Attention& attention,
                                            const ir::CapturedTensor& tensor,
                                            const std::vector<double>& values) {
  const Dim dim = tensor.name == ir::kLengthsQ ? Dim::Sq : Dim::Skv;
  const auto size = attention.dims.get(dim);
  for (std::size_t i = 0; size && i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] <= static_cast<double>(*size)) continue;
    return BrokenFact{i, fmt::format("has {}, which is outside 0..{}", values[i], *size),
                      fmt::format("a length is from 0 to {}", to_string(dim))};
  }
  return std::nullopt;
}

// Values of floats, or exact integers.
template <typename Value>
std::optional<BrokenFact> decreases(const std::vector<Value>& values, std::size_t width) {
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (i % width == 0 || values[i] >= values[i - 1]) continue;
    return BrokenFact{i,
                      fmt::format("is declared monotone, but element {} is {}, after {}", i,
                                  values[i], values[i - 1]),
                      "elements must not decrease along the last axis"};
  }
  return std::nullopt;
}

// The number and length of runs of equal elements along the last axis.
template <typename Value>
std::optional<BrokenFact> has_other_runs(const ir::Attention& attention,
                                         const ir::CapturedTensor& tensor,
                                         const std::vector<Value>& values, std::size_t width) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  const auto size = [&](const std::optional<ir::ExprId>& written) {
    if (!written) return kAny;
    return ir::fold_integer(attention.dag, *written, attention.dims).value_or(kAny);
  };
  const std::int64_t most = size(tensor.runs), longest = size(tensor.longest_run);
  std::int64_t runs = 0, length = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool begins = i % width == 0;
    const bool changes = begins || values[i] != values[i - 1];
    runs = begins ? 1 : runs + (changes ? 1 : 0);
    length = changes ? 1 : length + 1;
    if (runs > most) {
      return BrokenFact{
          i,
          fmt::format("is declared to have at most {} runs, but element {} begins another", most,
                      i),
          "a run is a sequence of equal elements along the last axis; `runs(N)` allows N of them"};
    }
    if (length > longest) {
      return BrokenFact{
          i,
          fmt::format("is declared to have runs of at most {}, but the run at element {} is longer",
                      longest, i),
          "a run is a sequence of equal elements along the last axis; `runs(N, M)` allows M"};
    }
  }
  return std::nullopt;
}

template <typename Value>
std::optional<BrokenFact> broken_order(const ir::Attention& attention,
                                       const ir::CapturedTensor& tensor,
                                       const std::vector<Value>& values, std::size_t width) {
  std::optional<BrokenFact> broken;
  if (tensor.monotone) broken = decreases(values, width);
  if (!broken && tensor.runs) broken = has_other_runs(attention, tensor, values, width);
  return broken;
}

}  // namespace

std::optional<BrokenFact> broken_fact(const ir::Attention& attention,
                                      const ir::CapturedTensor& tensor,
                                      const io::HostTensor& given) {
  std::optional<BrokenFact> broken;
  const std::vector<double>& values = given.values;
  const std::size_t row = given.dims.empty() ? 1 : static_cast<std::size_t>(given.dims.back());
  if (tensor.name == ir::kLengthsQ || tensor.name == ir::kLengthsKv)
    broken = outside_dimension(attention, tensor, values);
  if (broken) return broken;
  return given.wide.empty() ? broken_order(attention, tensor, values, row)
                            : broken_order(attention, tensor, given.wide, row);
}

}  // namespace attn::reference
