// Reads the lines of IR text that declare: nodes, tensors, dims and layouts. Internal to
// compiler/ir/parse.cpp.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/ir/scanner.h"

namespace attn::ir {

using Numbers = std::vector<ExprId>;

// Reads lines of nodes.
class NodeLines {
 protected:
  // Parses a node, after the '%': 12: real = mul %3, %4
  Status node(Scanner& line) {
    const std::size_t count = out_.dag.size();
    ATTN_ASSIGN(const std::int64_t number, line.integer());
    if (number != static_cast<std::int64_t>(count)) {
      return line.error(fmt::format("expected node %{}", count));
    }
    ATTN_RETURN_IF_ERROR(line.expect(":"));
    ATTN_ASSIGN(const std::string_view type_name, line.word());
    const std::optional<Type> type = parse_type(type_name);
    if (!type) return line.error(fmt::format("'{}' is not a type", type_name));
    ATTN_RETURN_IF_ERROR(line.expect("="));
    ATTN_ASSIGN(const std::string_view op_name, line.word());
    const std::optional<Op> op = parse_op(op_name);
    if (!op) return line.error(fmt::format("'{}' is not an op", op_name));
    ATTN_ASSIGN(Attribute attribute, this->attribute(line, info(*op).attribute));
    ATTN_ASSIGN(const Numbers operands, this->operands(line));
    return add(line, *op, *type, std::move(attribute), operands);
  }

  Result<Attribute> attribute(Scanner& line, AttributeKind kind) {
    switch (kind) {
      case AttributeKind::none: return Attribute();
      case AttributeKind::boolean:
        if (line.accept("true")) return Attribute(true);
        ATTN_RETURN_IF_ERROR(line.expect("false"));
        return Attribute(false);
      case AttributeKind::integer: {
        ATTN_ASSIGN(const std::int64_t value, line.integer());
        return Attribute(value);
      }
      case AttributeKind::real: {
        ATTN_ASSIGN(const double value, line.real());
        return Attribute(value);
      }
      case AttributeKind::symbol: {
        ATTN_ASSIGN(const std::string_view value, line.word());
        return Attribute(std::string(value));
      }
    }
    return Attribute();
  }

  Result<Numbers> operands(Scanner& line) {
    line.accept(",");  // between the attribute and the first operand
    Numbers ids;
    while (!line.at_end()) {
      if (!ids.empty()) ATTN_RETURN_IF_ERROR(line.expect(","));
      ATTN_ASSIGN(const ExprId id, node_id(line));
      ids.push_back(id);
    }
    return ids;
  }

  Result<ExprId> node_id(Scanner& line) {
    ATTN_ASSIGN(const std::size_t number, line.number());
    if (number >= out_.dag.size()) {
      return line.error(fmt::format("%{} is not defined yet", number));
    }
    return static_cast<ExprId>(number);
  }

  Status add(Scanner& line, Op op, Type type, Attribute attribute, const Numbers& operands) {
    const int wanted = info(op).operands;
    if (wanted >= 0 && operands.size() != static_cast<std::size_t>(wanted)) {
      return line.error(fmt::format("{} takes {} operands", info(op).name, wanted));
    }
    std::vector<Type> types;
    for (ExprId id : operands) types.push_back(out_.dag[id].type);
    ATTN_ASSIGN(const Type derived, type_of(line, op, attribute, types));
    if (type != derived) return line.error(fmt::format("the type is {}", to_string(derived)));
    const std::size_t before = out_.dag.size();
    if (info(op).rule == Rule::symbol_type) {
      out_.dag.add_symbol(op, std::get<std::string>(attribute), type, operands);
    } else {
      out_.dag.add(op, operands, std::move(attribute));
    }
    if (out_.dag.size() == before) return line.error("the same expression was defined before");
    return {};
  }

  Result<Type> type_of(Scanner& line, Op op, const Attribute& attribute,
                       const std::vector<Type>& operands) {
    if (info(op).rule != Rule::symbol_type) {
      const std::optional<Type> type = result_type(info(op).rule, operands);
      if (type) return *type;
      return line.error(fmt::format("operand types do not fit {}", info(op).name));
    }
    for (Type operand : operands) {
      if (operand != Type::integer) return line.error("an index is not an int");
    }
    const std::string& name = std::get<std::string>(attribute);
    if (op == Op::load_ && (name == "q" || name == "k")) return Type::real;
    if (op == Op::load_ && out_.find_tensor(name)) return value_type(out_.find_tensor(name)->dtype);
    if (op == Op::param_ && out_.find_param(name)) return value_type(out_.find_param(name)->dtype);
    return line.error(fmt::format("'{}' is not declared", name));
  }

  Attention out_;
};

// Reads lines of dims, tensors and layouts.
class TensorLines : public NodeLines {
 public:
  using NodeLines::NodeLines;

 protected:
  Status dims(Scanner& line) {
    while (!line.at_end()) {
      ATTN_ASSIGN(const std::string_view name, line.word());
      const std::optional<Dim> dim = parse_dim(name);
      if (!dim) return line.error(fmt::format("'{}' is not a dimension", name));
      ATTN_RETURN_IF_ERROR(line.expect("="));
      if (line.accept("?")) continue;
      ATTN_ASSIGN(const std::int64_t size, line.integer());
      out_.dims.set(*dim, size);
    }
    return {};
  }

  Status dtype(Scanner& line, DType& type) {
    ATTN_ASSIGN(const std::string_view name, line.word());
    const std::optional<DType> parsed = parse_dtype(name);
    if (!parsed) return line.error(fmt::format("'{}' is not a dtype", name));
    type = *parsed;
    return {};
  }

  Status layouts(Scanner& line) {
    while (!line.at_end()) {
      ATTN_ASSIGN(const std::string_view tensor, line.word());
      ATTN_RETURN_IF_ERROR(line.expect("="));
      ATTN_ASSIGN(const std::string_view name, line.word());
      const std::optional<LayoutKind> kind = parse_layout_kind(name);
      if (!kind) return line.error(fmt::format("'{}' is not a layout", name));
      Layout& layout = out_.layouts[std::string(tensor)];
      layout.kind = *kind;
      if (*kind == LayoutKind::strided) ATTN_RETURN_IF_ERROR(line.expect("("));
      if (*kind == LayoutKind::strided || (*kind == LayoutKind::thd && line.accept("("))) {
        layout.bound_strides = *kind == LayoutKind::thd && line.accept("bound");
        ATTN_RETURN_IF_ERROR(layout.bound_strides ? line.expect(")") : strides(line, layout));
      }
      if (*kind == LayoutKind::paged) ATTN_RETURN_IF_ERROR(pages(line, layout));
    }
    return {};
  }

  Status strides(Scanner& line, Layout& layout) {
    for (std::size_t axis = 0; axis < layout.strides.size(); ++axis) {
      if (axis > 0) ATTN_RETURN_IF_ERROR(line.expect(","));
      ATTN_ASSIGN(layout.strides[axis], line.integer());
    }
    return line.expect(")");
  }

  Status pages(Scanner& line, Layout& layout) {
    ATTN_RETURN_IF_ERROR(line.expect("("));
    ATTN_ASSIGN(layout.page, line.integer());
    ATTN_RETURN_IF_ERROR(line.expect(","));
    ATTN_ASSIGN(layout.pages, line.integer());
    while (line.accept(",") && !layout.bound_strides) {
      layout.bound_strides = line.accept("bound");
      if (layout.bound_strides) break;
      if (accepts_rows(line, layout)) continue;
      ATTN_ASSIGN(layout.tables, line.integer());
    }
    return line.expect(")");
  }
  static bool accepts_rows(Scanner& line, Layout& layout) {
    for (const RowFormatInfo& each : row_formats()) {
      if (!line.accept(each.name)) continue;
      layout.rows = parse_row_format(each.name);
      return true;
    }
    return false;
  }

  Status align(Scanner& line) {
    ATTN_ASSIGN(const std::string_view name, line.word());
    for (Align align : {Align::top_left, Align::bottom_right}) {
      if (to_string(align) != name) continue;
      out_.align = align;
      return {};
    }
    return line.error(fmt::format("'{}' is not an alignment", name));
  }

  Status tensor(Scanner& line, bool learned) {
    CapturedTensor tensor;
    tensor.learned = learned;
    ATTN_RETURN_IF_ERROR(shape(line, tensor));
    tensor.computed = line.accept("computed");
    tensor.monotone = line.accept("monotone");
    if (line.accept("runs")) {
      ATTN_RETURN_IF_ERROR(line.expect("("));
      ATTN_RETURN_IF_ERROR(expression(line, tensor.runs));
      if (line.accept(",")) ATTN_RETURN_IF_ERROR(expression(line, tensor.longest_run));
      ATTN_RETURN_IF_ERROR(line.expect(")"));
    }
    if (line.accept("=")) ATTN_RETURN_IF_ERROR(expression(line, tensor.fallback));
    out_.tensors.push_back(std::move(tensor));
    return {};
  }

  // NAME: DTYPE[%1, %2]
  Status shape(Scanner& line, CapturedTensor& tensor) {
    ATTN_ASSIGN(tensor.name, line.word());
    ATTN_RETURN_IF_ERROR(line.expect(":"));
    ATTN_RETURN_IF_ERROR(dtype(line, tensor.dtype));
    ATTN_RETURN_IF_ERROR(line.expect("["));
    while (!line.accept("]")) {
      if (!tensor.extents.empty()) ATTN_RETURN_IF_ERROR(line.expect(","));
      ATTN_ASSIGN(const std::size_t extent, line.number());
      tensor.extents.push_back(static_cast<ExprId>(extent));
    }
    return {};
  }

  Status sum(Scanner& line) {
    KeySum sum;
    ATTN_RETURN_IF_ERROR(shape(line, sum.tensor));
    sum.of_batch = line.accept("b");
    sum.of_head = line.accept("h");
    sum.tensor.learned = line.accept("learned");
    ATTN_RETURN_IF_ERROR(line.expect("="));
    ATTN_ASSIGN(const std::size_t value, line.number());
    sum.value = static_cast<ExprId>(value);
    out_.sums.push_back(std::move(sum));
    return {};
  }

  // NAME: DTYPE[%1, %2] k=TENSOR
  Status branch(Scanner& line) {
    Branch branch;
    ATTN_RETURN_IF_ERROR(shape(line, branch.o));
    branch.o.name = output_of_branch(branch.o.name);
    while (!line.at_end()) {
      ATTN_ASSIGN(const std::string_view name, line.word());
      ATTN_RETURN_IF_ERROR(line.expect("="));
      ATTN_ASSIGN(branch.inputs[std::string(name)], line.word());
    }
    out_.branches.push_back(std::move(branch));
    return {};
  }

  static Status expression(Scanner& line, std::optional<ExprId>& id) {
    ATTN_ASSIGN(const std::size_t number, line.number());
    id = static_cast<ExprId>(number);
    return {};
  }

  Status param(Scanner& line) {
    Param param;
    ATTN_ASSIGN(param.name, line.word());
    ATTN_RETURN_IF_ERROR(line.expect(":"));
    ATTN_RETURN_IF_ERROR(dtype(line, param.dtype));
    out_.params.push_back(std::move(param));
    return {};
  }

  // o=e4m3 do=e4m3 gradients=e4m3, after mxfp8 if there are scales of blocks
  Status quantize(Scanner& line) {
    if (out_.quantize) return line.error("given twice");
    Quantize& quantize = out_.quantize.emplace();
    if (line.accept(to_string(Scaling::mxfp8))) quantize.by = Scaling::mxfp8;
    for (const auto& [name, type] : {std::pair("o", &quantize.o), std::pair("do", &quantize.d_o),
                                     std::pair("gradients", &quantize.gradients)}) {
      ATTN_RETURN_IF_ERROR(line.expect(name));
      ATTN_RETURN_IF_ERROR(line.expect("="));
      ATTN_RETURN_IF_ERROR(dtype(line, *type));
    }
    return {};
  }

  Status cache(Scanner& line) {
    if (out_.cache) return line.error("given twice");
    Cache& cache = out_.cache.emplace();
    ATTN_ASSIGN(const std::string_view name, line.word());
    const std::optional<CacheScale> by = parse_cache_scale(name);
    if (!by) return line.error(fmt::format("'{}' is not what has a scale", name));
    cache.by = *by;
    for (const auto& [tensor, type] : {std::pair("k", &cache.k), std::pair("v", &cache.v)}) {
      ATTN_RETURN_IF_ERROR(line.expect(tensor));
      ATTN_RETURN_IF_ERROR(line.expect("="));
      ATTN_RETURN_IF_ERROR(dtype(line, *type));
    }
    return {};
  }

  static Status set(bool& flag) {
    flag = true;
    return {};
  }
};

}  // namespace attn::ir
