#include "compiler/derive/expression_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <regex>

#include "compiler/ir/real_function.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/kernel_text.h"
#include "compiler/passes/analysis/range.h"
#include "runtime/base/check.h"

namespace attn::derive {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

// An element, converted to its type in expressions.
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

// The C++ pattern of an operation; {0} and {1} are its operands.
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
    default: check_failed(__FILE__, __LINE__, "CUDA text", ir::info(op).name);
  }
}

std::string_view real_pattern(Op op) {
  if (const ir::RealFunction* function = ir::find_real_function(op)) return function->cuda;
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
    case Op::pow_: return "pow({0}, {1})";
    case Op::floor_: return "floor({0})";
    case Op::ceil_: return "ceil({0})";
    default: check_failed(__FILE__, __LINE__, "CUDA text", ir::info(op).name);
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

std::int64_t extent_of(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                       std::size_t axis) {
  return *ir::fold_integer(attention.dag, tensor.extents[axis], attention.dims);
}

// Whether 32 bits hold the number of each element: fused kernels have no registers to waste.
bool has_short_offsets(const ir::Attention& attention, const ir::CapturedTensor& tensor) {
  double elements = 1;
  for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
    elements *= static_cast<double>(extent_of(attention, tensor, i));
  }
  return elements < 0x1p31;
}

bool is_within(const ir::Attention& attention, ExprId id, std::int64_t low, std::int64_t high) {
  const passes::Range range = passes::range_of(attention, id);
  return range.low >= low && range.high <= high;
}

bool may_fail(const ir::Attention& attention, ExprId id) {
  const Node& node = attention.dag[id];
  const auto within = [&](std::size_t operand, std::int64_t low, std::int64_t high) {
    return is_within(attention, node.operands[operand], low, high);
  };
  switch (node.op) {
    case Op::load_: return !unproven_indices(attention, id).empty();
    case Op::floordiv_:
    case Op::mod_:
      return node.type == ir::Type::integer && !within(1, 1, INT32_MAX) &&
             !within(1, INT32_MIN, -1);
    case Op::shift_left_:
    case Op::shift_right_: return !within(1, 0, 31);
    default: return false;
  }
}

}  // namespace

KernelInputs inputs_of(const ir::Attention& attention, const std::vector<ExprId>& expressions) {
  std::set<std::string> used;
  for (const ExprId id : ir::reachable(attention.dag, expressions)) {
    if (ir::info(attention.dag[id].op).rule == ir::Rule::symbol_type) {
      used.insert(attention.dag.symbol_of(id));
    }
  }
  KernelInputs inputs;
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    if (!used.contains(tensor.name)) continue;
    inputs.operands.emplace_back(plan::TensorOperand{tensor.name});
    inputs.parameters.push_back(
        fmt::format("const {}* t_{}", kernels::element_type(tensor.dtype), tensor.name));
  }
  for (const ir::Param& param : attention.params) {
    if (!used.contains(param.name)) continue;
    inputs.operands.emplace_back(plan::ParamOperand{param.name});
    inputs.parameters.push_back(
        fmt::format("{} p_{}", kernels::element_type(param.dtype), param.name));
  }
  return inputs;
}

std::vector<ExprId> faults_of(const ir::Attention& attention,
                              const std::vector<ExprId>& expressions) {
  std::vector<ExprId> faults = ir::reachable(attention.dag, expressions);
  std::erase_if(faults, [&attention](ExprId id) { return !may_fail(attention, id); });
  return faults;
}

std::vector<ExprId> unproven_indices(const ir::Attention& attention, ExprId load) {
  const Node& node = attention.dag[load];
  const ir::CapturedTensor& tensor = *attention.find_tensor(attention.dag.symbol_of(load));
  std::vector<ExprId> unproven;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const std::int64_t last = extent_of(attention, tensor, i) - 1;
    if (!is_within(attention, node.operands[i], 0, last)) unproven.push_back(node.operands[i]);
  }
  return unproven;
}

ExpressionWriter::ExpressionWriter(const ir::Attention& attention, std::vector<ExprId> faults,
                                   Precision precision)
    : attention_(attention), dag_(attention.dag), precision_(precision) {
  for (std::size_t i = 0; i < faults.size(); ++i) numbers_[faults[i]] = static_cast<int>(i) + 1;
}

void ExpressionWriter::begin(const passes::Axes& axes) {
  lines_.clear();
  names_.clear();
  fault_names_.clear();
  varying_ = axes;
  score_ = "0.0";
}

// The last axis varies fastest.
void ExpressionWriter::begin(const passes::Axes& axes, const std::vector<std::int64_t>& dims) {
  begin(axes);
  const std::pair<bool, const char*> all[] = {
      {axes.batch, "b"}, {axes.head, "h"}, {axes.row, "row"}, {axes.column, "column"}};
  std::size_t place = dims.size();
  std::int64_t inner = 1;
  for (std::size_t i = std::size(all); i-- > 0;) {
    const auto& [varies, name] = all[i];
    if (!varies) continue;
    --place;
    const std::string outer = inner == 1 ? "i" : fmt::format("i / {}", inner);
    lines_.push_back(place == 0
                         ? fmt::format("const int {} = (int)({});", name, outer)
                         : fmt::format("const int {} = (int)({} % {});", name, outer, dims[place]));
    inner *= dims[place];
  }
}

void ExpressionWriter::set_score(const std::string& value) {
  lines_.push_back(fmt::format("const {} score = {};", c_type(ir::Type::real), value));
  score_ = "score";
}

std::string ExpressionWriter::value(ExprId id) {
  for (const ExprId node : without_names(id)) names_[node] = named(node);
  return names_[id];
}

// What the root needs besides what has names, operands first.
std::vector<ExprId> ExpressionWriter::without_names(ExprId root) const {
  std::set<ExprId> needed;
  std::vector<ExprId> open = {root};
  while (!open.empty()) {
    const ExprId id = open.back();
    open.pop_back();
    if (names_.contains(id) || !needed.insert(id).second) continue;
    open.insert(open.end(), dag_[id].operands.begin(), dag_[id].operands.end());
  }
  return {needed.begin(), needed.end()};
}

std::string ExpressionWriter::fault(ExprId id) const {
  const auto found = fault_names_.find(id);
  return found == fault_names_.end() ? "0" : found->second;
}

std::string ExpressionWriter::statements(std::size_t indent) const {
  std::string text;
  for (const std::string& line : lines_) text += fmt::format("{:{}}{}\n", "", indent, line);
  return text;
}

// Constants and indices are written as they are, everything else gets a variable.
std::string ExpressionWriter::named(ExprId id) {
  const Node& node = dag_[id];
  switch (node.op) {
    case Op::const_bool_: return dag_.boolean_of(id) ? "true" : "false";
    case Op::const_int_: return integer_text(dag_.integer_of(id));
    case Op::const_real_: return in_precision(number_text(dag_.real_of(id)));
    case Op::score_: return score_;
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
  if (!numbers_.empty()) track(id, name);
  return name;
}

std::string ExpressionWriter::operation(ExprId id) const {
  const Node& node = dag_[id];
  if (node.is(Op::param_)) return fmt::format("({})p_{}", c_type(node.type), dag_.symbol_of(id));
  std::string_view pattern = other_pattern(node.op);
  const ir::Type type = dag_[node.operands[0]].type;
  if (pattern.empty()) {
    pattern = type == ir::Type::integer ? integer_pattern(node.op) : real_pattern(node.op);
  }
  std::string text = in_precision(std::string(pattern));
  if (precision_ == Precision::in_single) text = faster_pattern(node).value_or(text);
  std::vector<std::string> operands;
  for (const ExprId operand : node.operands) operands.push_back(held(operand));
  operands.resize(3);
  return fmt::format(fmt::runtime(text), operands[0], operands[1], operands[2]);
}

// Of operations that take long for each score. Quotients of reals are rounded correctly, because
// masks compare them, or round them to integers.
std::optional<std::string> ExpressionWriter::faster_pattern(const Node& node) const {
  if (node.type == ir::Type::real) {
    if (node.is(Op::floordiv_)) return "floorf(__fdiv_rn({0}, {1}))";
    if (node.is(Op::mod_)) return "{0} - {1} * floorf(__fdiv_rn({0}, {1}))";
    if (node.is(Op::div_)) return "__fdiv_rn({0}, {1})";
    return std::nullopt;
  }
  const bool divides = node.is(Op::floordiv_), rests = node.is(Op::mod_);
  if ((!divides && !rests) || !dag_[node.operands[1]].is(Op::const_int_)) return std::nullopt;
  const std::int64_t by = dag_.integer_of(node.operands[1]);
  if (by < 1) return std::nullopt;
  if (std::has_single_bit(static_cast<std::uint64_t>(by))) {
    const int bits = std::countr_zero(static_cast<std::uint64_t>(by));
    return divides ? fmt::format("{{0}} >> {}", bits) : fmt::format("{{0}} & {}", by - 1);
  }
  if (passes::range_of(attention_, node.operands[0]).low < 0) return std::nullopt;
  return fmt::format("(int)((unsigned){{0}} {} {}u)", divides ? '/' : '%', by);
}

std::string_view ExpressionWriter::c_type(ir::Type type) const {
  switch (type) {
    case ir::Type::boolean: return "bool";
    case ir::Type::integer: return "int";
    case ir::Type::real: return precision_ == Precision::in_single ? "float" : "double";
  }
  return {};
}

// Literals and conversions in float: one of double would make all of an expression double.
std::string ExpressionWriter::in_precision(std::string text) const {
  if (precision_ == Precision::in_double) return text;
  for (std::size_t at = 0; (at = text.find("(double)", at)) != text.npos;) {
    text.replace(at, 8, "(float)");
  }
  static const std::regex kLiteral(R"(\b\d+(\.\d+(e[-+]?\d+)?|e[-+]?\d+))");
  return std::regex_replace(text, kLiteral, "$&f");
}

// Puts negative numbers in parentheses.
std::string ExpressionWriter::held(ExprId id) const {
  const std::string& name = names_.find(id)->second;
  return name.starts_with('-') ? fmt::format("({})", name) : name;
}

std::string ExpressionWriter::load(ExprId id, const std::string& name) {
  const Node& node = dag_[id];
  const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(id));
  const std::string read =
      in_precision(converted(tensor.dtype, fmt::format("t_{}[{}]", tensor.name, element(id))));
  if (!may_fail(attention_, id)) return read;
  lines_.push_back(fmt::format("const bool {}_out = {};", name, failure(id)));
  return fmt::format("{}_out ? {} : {}", name, node.type == ir::Type::boolean ? "false" : "0",
                     read);
}

std::string ExpressionWriter::element(ExprId load) const {
  const Node& node = dag_[load];
  const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(load));
  const bool is_short = precision_ == Precision::in_single && has_short_offsets(attention_, tensor);
  std::string offset = "0";
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const std::string index = held(node.operands[i]);
    offset = i == 0
                 ? fmt::format("{}{}", is_short ? "" : "(long long)", index)
                 : fmt::format("({}) * {} + {}", offset, extent_of(attention_, tensor, i), index);
  }
  return offset;
}

// A condition; empty if the index is known to be in range.
std::string ExpressionWriter::out_of_range(ExprId index, std::int64_t low,
                                           std::int64_t high) const {
  const passes::Range range = passes::range_of(attention_, index);
  std::string text;
  if (range.low < low) text = fmt::format("{} < {}", held(index), low);
  if (range.high > high) {
    text += fmt::format("{}{} > {}", text.empty() ? "" : " || ", held(index), high);
  }
  return text;
}

std::string ExpressionWriter::failure(ExprId id) const {
  const Node& node = dag_[id];
  if (node.is(Op::floordiv_) || node.is(Op::mod_)) return held(node.operands[1]) + " == 0";
  if (!node.is(Op::load_)) return out_of_range(node.operands[1], 0, 31);
  const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(id));
  std::string text;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const std::string one = out_of_range(node.operands[i], 0, extent_of(attention_, tensor, i) - 1);
    if (!one.empty()) text += (text.empty() ? "" : " || ") + one;
  }
  return text;
}

// A variable for the fault of a node that may have one.
void ExpressionWriter::track(ExprId id, const std::string& name) {
  const std::string text = tracked(id);
  if (text == "0") return;
  if (text.starts_with('f') && text.find(' ') == std::string::npos) {  // an operand's
    fault_names_[id] = text;
    return;
  }
  fault_names_[id] = fmt::format("f{}", name.substr(1));
  lines_.push_back(fmt::format("const int {} = {};", fault_names_[id], text));
}

std::string ExpressionWriter::tracked(ExprId id) const {
  const Node& node = dag_[id];
  if (node.is(Op::select_)) {
    const std::string condition = fault(node.operands[0]);
    const std::string x = fault(node.operands[1]), y = fault(node.operands[2]);
    if (condition == "0" && x == "0" && y == "0") return "0";
    const std::string branch = depends_on_score(node.operands[0])
                                   ? fmt::format("{} != 0 ? {} : 0", x, y)
                                   : fmt::format("{} ? {} : {}", held(node.operands[0]), x, y);
    return condition == "0" ? branch : fmt::format("{0} != 0 ? {0} : {1}", condition, branch);
  }
  if (node.is(Op::and_) || node.is(Op::or_)) return logic_fault(node);
  const std::string before = operands_fault(node);
  const auto number = numbers_.find(id);
  if (number == numbers_.end()) return before;
  const std::string own = fmt::format("{} ? {} : 0", failure(id), number->second);
  return before == "0" ? own : fmt::format("{0} != 0 ? {0} : {1}", before, own);
}

// The fault of the first operand that has one.
std::string ExpressionWriter::operands_fault(const Node& node) const {
  std::string text = "0";
  for (std::size_t i = node.operands.size(); i-- > 0;) {
    const std::string one = fault(node.operands[i]);
    if (one == "0") continue;
    text = text == "0" ? one : fmt::format("({0} != 0 ? {0} : {1})", one, text);
  }
  return text;
}

// No fault if one side has a value that decides.
std::string ExpressionWriter::logic_fault(const Node& node) const {
  const ExprId x = node.operands[0], y = node.operands[1];
  if (fault(x) == "0" && fault(y) == "0") return "0";
  if (depends_on_score(x) || depends_on_score(y)) {
    return fmt::format("{} != 0 ? {} : 0", fault(x), fault(y));
  }
  const char* decides = node.is(Op::and_) ? "!" : "";
  return fmt::format("{0} == 0 && {4}{2} || {1} == 0 && {4}{3} ? 0 : {0} != 0 ? {0} : {1}",
                     fault(x), fault(y), held(x), held(y), decides);
}

bool ExpressionWriter::depends_on_score(ExprId id) const {
  const ExprId roots[] = {id};
  return std::ranges::any_of(ir::reachable(dag_, roots),
                             [this](ExprId node) { return dag_[node].is(Op::score_); });
}

}  // namespace attn::derive
