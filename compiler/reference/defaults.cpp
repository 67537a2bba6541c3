#include "compiler/reference/defaults.h"

#include <fmt/format.h>

#include <array>

#include "compiler/reference/operation.h"
#include "runtime/io/element.h"

namespace attn::reference {
namespace {

using ir::ExprId;
using ir::Op;

// Evaluates the nodes below a root, one element at a time.
class ElementEvaluator {
 public:
  ElementEvaluator(const ir::Attention& attention, ExprId root)
      : attention_(attention), root_(root), values_(attention.dag.size()) {
    const ExprId roots[] = {root};
    ids_ = ir::reachable(attention.dag, roots);
  }

  std::optional<double> run(const std::vector<std::int64_t>& indexes) {
    for (ExprId id : ids_) values_[id] = evaluate(attention_.dag[id], indexes);
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
  std::vector<ExprId> ids_;
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
          fmt::format("{}: the extent {} is open", tensor.name, to_source(attention, extent)),
          {},
          {}};
    }
    dims.push_back(*size);
  }
  return dims;
}

// Advances to the next element, row-major.
void step(std::vector<std::int64_t>& indexes, const std::vector<std::int64_t>& dims) {
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    if (++indexes[axis] < dims[axis]) return;
    indexes[axis] = 0;
  }
}

}  // namespace

Result<io::HostTensor> default_values(const ir::Attention& attention,
                                      const ir::CapturedTensor& tensor) {
  ATTN_ASSIGN(const std::vector<std::int64_t> dims, dims_of(attention, tensor));
  io::HostTensor result{tensor.dtype, dims, {}};
  const auto count = static_cast<std::size_t>(io::element_count(dims));
  result.values.reserve(count);
  ElementEvaluator evaluator(attention, *tensor.fallback);
  std::vector<std::int64_t> indexes(dims.size(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<double> value = evaluator.run(indexes);
    if (!value || (!is_float(tensor.dtype) && !io::fits(tensor.dtype, *value))) {
      return Error{ErrorCode::binding,
                   fmt::format("the default of {} gives no valid {} for element {}", tensor.name,
                               to_string(tensor.dtype), i),
                   {},
                   {}};
    }
    result.values.push_back(*value);
    step(indexes, dims);
  }
  return result;
}

}  // namespace attn::reference
