#include "compiler/derive/emit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "compiler/derive/prelude.h"
#include "compiler/ir/text.h"
#include "compiler/passes/range.h"

namespace attn::derive {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

std::string_view c_type(ir::Type type) {
  switch (type) {
    case ir::Type::boolean: return "bool";
    case ir::Type::integer: return "int";
    case ir::Type::real: return "double";
  }
  return {};
}

std::string_view element_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16: return "unsigned short";
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::i8: return "signed char";
    case DType::u8:
    case DType::boolean: return "unsigned char";
    case DType::i32: return "int";
    case DType::i64: return "long long";
  }
  return {};
}

// An element as the type that it has in expressions.
std::string converted(DType dtype, const std::string& element) {
  switch (dtype) {
    case DType::f16: return fmt::format("attn_f16({})", element);
    case DType::bf16: return fmt::format("attn_bf16({})", element);
    case DType::f32:
    case DType::f64: return fmt::format("(double){}", element);
    case DType::boolean: return fmt::format("{} != 0", element);
    default: return fmt::format("(int){}", element);
  }
}

std::string integer_text(std::int64_t value) {
  return value == INT32_MIN ? "(-2147483647 - 1)" : fmt::format("{}", value);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "(0.0 / 0.0)";
  if (std::isinf(value)) return value > 0 ? "(1.0 / 0.0)" : "(-1.0 / 0.0)";
  return ir::real_text(value);
}

// What an operation is in C++, with {0} and {1} for its operands.
std::string_view integer_pattern(Op op) {
  switch (op) {
    case Op::add_: return "attn_wrap((long long){0} + {1})";
    case Op::sub_: return "attn_wrap((long long){0} - {1})";
    case Op::mul_: return "attn_wrap((long long){0} * {1})";
    case Op::floordiv_: return "attn_floordiv({0}, {1})";
    case Op::mod_: return "attn_mod({0}, {1})";
    case Op::min_: return "{0} < {1} ? {0} : {1}";
    case Op::max_: return "{0} > {1} ? {0} : {1}";
    case Op::neg_: return "attn_wrap(-(long long){0})";
    case Op::abs_: return "attn_wrap({0} < 0 ? -(long long){0} : {0})";
    case Op::bit_and_: return "{0} & {1}";
    case Op::bit_or_: return "{0} | {1}";
    case Op::bit_xor_: return "{0} ^ {1}";
    case Op::bit_not_: return "~{0}";
    case Op::shift_left_: return "attn_shl({0}, {1})";
    case Op::shift_right_: return "attn_shr({0}, {1})";
    default: return {};
  }
}

std::string_view real_pattern(Op op) {
  switch (op) {
    case Op::add_: return "{0} + {1}";
    case Op::sub_: return "{0} - {1}";
    case Op::mul_: return "{0} * {1}";
    case Op::div_: return "{0} / {1}";
    case Op::floordiv_: return "floor({0} / {1})";
    case Op::mod_: return "{0} - {1} * floor({0} / {1})";
    case Op::min_: return "attn_min({0}, {1})";
    case Op::max_: return "attn_max({0}, {1})";
    case Op::neg_: return "-{0}";
    case Op::abs_: return "fabs({0})";
    case Op::rsqrt_: return "1.0 / sqrt({0})";
    case Op::sigmoid_: return "1.0 / (1.0 + exp(-{0}))";
    default: return {};
  }
}

// Comparisons, booleans, select, conversions.
std::string_view other_pattern(Op op) {
  switch (op) {
    case Op::lt_: return "{0} < {1}";
    case Op::le_: return "{0} <= {1}";
    case Op::gt_: return "{0} > {1}";
    case Op::ge_: return "{0} >= {1}";
    case Op::eq_: return "{0} == {1}";
    case Op::ne_: return "{0} != {1}";
    case Op::and_: return "{0} && {1}";
    case Op::or_: return "{0} || {1}";
    case Op::not_: return "!{0}";
    case Op::select_: return "{0} ? {1} : {2}";
    case Op::to_real_: return "(double){0}";
    case Op::to_int_: return "(int){0}";
    case Op::truncate_: return "attn_truncate({0})";
    default: return {};
  }
}

class Emitter {
 public:
  explicit Emitter(const ir::Attention& attention) : attention_(attention), dag_(attention.dag) {}

  KernelSource emit(const std::vector<passes::DerivedTensor>& outputs) && {
    collect_inputs(outputs);
    std::string body;
    for (const passes::DerivedTensor& output : outputs) body += block(output);
    return {
        fmt::format("#include \"{}\"\nextern \"C\" __global__ void {}({}) {{\n"
                    "  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n{}}}\n",
                    kPreludeName, plan::kDeriveKernel, fmt::join(arguments(outputs), ", "), body),
        std::move(inputs_)};
  }

 private:
  // Tensors and params in the order of their declarations.
  void collect_inputs(const std::vector<passes::DerivedTensor>& outputs) {
    std::vector<ExprId> roots;
    for (const passes::DerivedTensor& output : outputs) roots.push_back(output.expression);
    std::set<std::string> used;
    for (const ExprId id : ir::reachable(dag_, roots)) {
      if (ir::info(dag_[id].op).rule == ir::Rule::symbol_type) used.insert(dag_.symbol_of(id));
    }
    for (const ir::CapturedTensor& tensor : attention_.tensors) {
      if (used.contains(tensor.name)) inputs_.emplace_back(plan::TensorOperand{tensor.name});
    }
    for (const ir::Param& param : attention_.params) {
      if (used.contains(param.name)) inputs_.emplace_back(plan::ParamOperand{param.name});
    }
  }

  std::vector<std::string> arguments(const std::vector<passes::DerivedTensor>& outputs) const {
    std::vector<std::string> all;
    for (const passes::DerivedTensor& output : outputs) {
      all.push_back(fmt::format("{}* o_{}", element_type(output.dtype), output.name));
    }
    for (const plan::OperandSource& input : inputs_) {
      if (const auto* tensor = std::get_if<plan::TensorOperand>(&input)) {
        const DType dtype = attention_.find_tensor(tensor->name)->dtype;
        all.push_back(fmt::format("const {}* t_{}", element_type(dtype), tensor->name));
      } else {
        const std::string& name = std::get<plan::ParamOperand>(input).name;
        const DType dtype = attention_.find_param(name)->dtype;
        all.push_back(fmt::format("{} p_{}", element_type(dtype), name));
      }
    }
    return all;
  }

  // The threads that make one output.
  std::string block(const passes::DerivedTensor& output) {
    const std::int64_t elements = std::accumulate(output.dims.begin(), output.dims.end(),
                                                  std::int64_t{1}, std::multiplies<>());
    lines_.clear();
    names_.clear();
    indices(output);
    const ExprId roots[] = {output.expression};
    for (const ExprId id : ir::reachable(dag_, roots)) names_[id] = named(id);
    const std::string value = names_[output.expression];
    std::string text = fmt::format("  if (i < {}) {{\n", elements);
    for (const std::string& line : lines_) text += "    " + line + "\n";
    return text + fmt::format("    o_{}[i] = ({}){};\n    return;\n  }}\n  i -= {};\n", output.name,
                              element_type(output.dtype), value, elements);
  }

  // The last axis varies fastest.
  void indices(const passes::DerivedTensor& output) {
    const passes::Axes& axes = output.axes;
    const std::pair<bool, const char*> all[] = {
        {axes.batch, "b"}, {axes.head, "h"}, {axes.row, "row"}, {axes.column, "column"}};
    std::size_t place = output.dims.size();
    std::int64_t inner = 1;
    for (std::size_t i = std::size(all); i-- > 0;) {
      const auto& [varies, name] = all[i];
      if (!varies) continue;
      --place;
      const std::string outer = inner == 1 ? "i" : fmt::format("i / {}", inner);
      lines_.push_back(place == 0 ? fmt::format("const int {} = (int)({});", name, outer)
                                  : fmt::format("const int {} = (int)({} % {});", name, outer,
                                                output.dims[place]));
      inner *= output.dims[place];
    }
    varying_ = axes;
  }

  // Constants and indices are named by themselves, all else gets a variable.
  std::string named(ExprId id) {
    const Node& node = dag_[id];
    switch (node.op) {
      case Op::const_bool_: return dag_.boolean_of(id) ? "true" : "false";
      case Op::const_int_: return integer_text(dag_.integer_of(id));
      case Op::const_real_: return number_text(dag_.real_of(id));
      case Op::batch_: return varying_.batch ? "b" : "0";
      case Op::head_: return varying_.head ? "h" : "0";
      case Op::row_: return varying_.row ? "row" : "0";
      case Op::column_: return varying_.column ? "column" : "0";
      case Op::dim_: return fmt::format("{}", attention_.dims[*ir::parse_dim(dag_.symbol_of(id))]);
      default: break;
    }
    std::string name = fmt::format("v{}", names_.size());
    const std::string value = node.is(Op::load_) ? load(id, name) : operation(id);
    lines_.push_back(fmt::format("const {} {} = {};", c_type(node.type), name, value));
    return name;
  }

  std::string operation(ExprId id) const {
    const Node& node = dag_[id];
    if (node.is(Op::param_)) {
      return fmt::format("({})p_{}", c_type(node.type), dag_.symbol_of(id));
    }
    std::string_view pattern = other_pattern(node.op);
    const ir::Type type = dag_[node.operands[0]].type;
    if (pattern.empty() && type == ir::Type::integer) pattern = integer_pattern(node.op);
    if (pattern.empty() && type == ir::Type::real) pattern = real_pattern(node.op);
    std::vector<std::string> operands;
    for (const ExprId operand : node.operands) operands.push_back(held(operand));
    operands.resize(3);
    // The others are functions of CUDA's by the same name.
    if (pattern.empty()) {
      const std::string all = fmt::format(
          "{}",
          fmt::join(operands.begin(),
                    operands.begin() + static_cast<std::ptrdiff_t>(node.operands.size()), ", "));
      return fmt::format("{}({})", ir::info(node.op).name, all);
    }
    return fmt::format(fmt::runtime(pattern), operands[0], operands[1], operands[2]);
  }

  // Negative numbers stand in parentheses.
  std::string held(ExprId id) const {
    const std::string& name = names_.find(id)->second;
    return name.starts_with('-') ? "(" + name + ")" : name;
  }

  std::string load(ExprId id, const std::string& name) {
    const Node& node = dag_[id];
    const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(id));
    std::string offset = "0", inside;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const ExprId index = node.operands[i];
      const std::int64_t extent = *ir::fold_integer(dag_, tensor.extents[i], attention_.dims);
      offset = i == 0 ? fmt::format("(long long){}", held(index))
                      : fmt::format("({}) * {} + {}", offset, extent, held(index));
      if (const std::string check = bound_check(index, extent); !check.empty()) {
        inside += (inside.empty() ? "" : " && ") + check;
      }
    }
    const std::string element =
        converted(tensor.dtype, fmt::format("t_{}[{}]", tensor.name, offset));
    if (inside.empty()) return element;
    lines_.push_back(fmt::format("const bool {}_in = {};", name, inside));
    return fmt::format("{}_in ? {} : {}", name, element,
                       node.type == ir::Type::boolean ? "false" : "0");
  }

  // Nothing where the index is known to lie inside.
  std::string bound_check(ExprId index, std::int64_t extent) const {
    const passes::Range range = passes::range_of(attention_, index);
    std::string text;
    if (range.low < 0) text = fmt::format("{} >= 0", held(index));
    if (range.high >= extent) {
      text += fmt::format("{}{} < {}", text.empty() ? "" : " && ", held(index), extent);
    }
    return text;
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  std::vector<plan::OperandSource> inputs_;
  passes::Axes varying_;
  std::vector<std::string> lines_;  // of the output in hand
  std::map<ExprId, std::string> names_;
};

}  // namespace

KernelSource emit_kernel(const ir::Attention& attention,
                         const std::vector<passes::DerivedTensor>& outputs) {
  return Emitter(attention).emit(outputs);
}

}  // namespace attn::derive
