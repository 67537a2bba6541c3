#include "compiler/codegen/expression_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <regex>
#include <utility>

#include "compiler/codegen/expression_faults.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/ir/real_function.h"
#include "compiler/ir/text.h"
#include "compiler/masks/range.h"
#include "runtime/base/check.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

// An element, converted to its type in expressions.
std::string converted(DType dtype, const std::string& element) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64: return real_text(dtype, element);
    case DType::boolean: return fmt::format("{} != 0", element);
    case DType::i64: return element;
    default: return fmt::format("(int){}", element);
  }
}

std::string integer_text(std::int64_t value) {
  return value == INT32_MIN ? "(-2147483647 - 1)" : fmt::format("{}", value);
}

std::string wide_text(std::int64_t value) {
  return value == INT64_MIN ? "(-9223372036854775807ll - 1)" : fmt::format("{}ll", value);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "(0.0 / 0.0)";
  if (std::isinf(value)) return value > 0 ? "(1.0 / 0.0)" : "(-1.0 / 0.0)";
  return ir::real_text(value);
}

// Integers below are exact as floats, and sums of few of them as integers.
constexpr std::int64_t kExact = std::int64_t{1} << 24;

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

// The same of 64 bits.
std::string_view wide_pattern(Op op) {
  switch (op) {
    case Op::add_: return "(long long)((unsigned long long){0} + (unsigned long long){1})";
    case Op::sub_: return "(long long)((unsigned long long){0} - (unsigned long long){1})";
    case Op::mul_: return "(long long)((unsigned long long){0} * (unsigned long long){1})";
    case Op::neg_: return "(long long)(0ull - (unsigned long long){0})";
    case Op::abs_: return "(long long)({0} < 0 ? 0ull - {0} : {0})";
    default: return integer_pattern(op);  // overloaded
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
    case Op::widen_: return "(long long){0}";
    case Op::narrow_: return "attn_narrow({0})";
    default: return {};
  }
}

// Whether 32 bits hold the number of each element: fused kernels have no registers to waste.
bool has_short_offsets(const ir::Attention& attention, const ir::CapturedTensor& tensor) {
  double elements = 1;
  for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
    elements *= static_cast<double>(extent_of(attention, tensor, i));
  }
  return elements < 0x1p31;
}

bool is_same(const Family& family) {
  return std::ranges::all_of(family, [&](ExprId id) { return id == family.front(); });
}

// A negative number would be part of the operation before it.
std::string in_parentheses(const std::string& name) {
  return name.starts_with('-') ? fmt::format("({})", name) : name;
}

// What a sum without terms is.
std::string neutral(Op op, ir::Type type) {
  const bool real = type == ir::Type::real;
  switch (op) {
    case Op::and_: return "true";
    case Op::or_: return "false";
    case Op::min_:
      if (type == ir::Type::wide) return wide_text(INT64_MAX);
      return real ? number_text(INFINITY) : integer_text(INT32_MAX);
    case Op::max_:
      if (type == ir::Type::wide) return wide_text(INT64_MIN);
      return real ? number_text(-INFINITY) : integer_text(INT32_MIN);
    case Op::bit_and_: return "-1";
    default: return real ? "0.0" : "0";
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
        fmt::format("const {}* t_{}", codegen::element_type(tensor.dtype), tensor.name));
  }
  for (const ir::Param& param : attention.params) {
    if (!used.contains(param.name)) continue;
    inputs.operands.emplace_back(plan::ParamOperand{param.name});
    inputs.parameters.push_back(
        fmt::format("{} p_{}", codegen::element_type(param.dtype), param.name));
  }
  return inputs;
}

ExpressionWriter::ExpressionWriter(const ir::Attention& attention, std::vector<ExprId> faults,
                                   Precision precision)
    : attention_(attention), dag_(attention.dag), precision_(precision), ranges_(attention) {
  for (std::size_t i = 0; i < faults.size(); ++i) numbers_[faults[i]] = static_cast<int>(i) + 1;
  begin({});
}

void ExpressionWriter::begin(const masks::Axes& axes) {
  scopes_.assign(1, {});
  reserved_ = 0;
  given_.clear();
  forget_repetitions();
  varying_ = axes;
  score_ = "0.0";
}

// The last axis varies fastest.
void ExpressionWriter::begin(const masks::Axes& axes, const std::vector<std::int64_t>& dims) {
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
    add_line(place == 0 ? fmt::format("const int {} = (int)({});", name, outer)
                        : fmt::format("const int {} = (int)({} % {});", name, outer, dims[place]));
    inner *= dims[place];
  }
}

void ExpressionWriter::repeat(const std::string& variable, std::size_t turns) {
  scopes_.push_back({variable, turns, turns * scopes_.back().size});
}

void ExpressionWriter::set_score(const std::string& value) {
  add_line(fmt::format("const {} score = {};", c_type(ir::Type::real), value));
  score_ = "score";
}

void ExpressionWriter::set_value(ExprId id, const std::string& text) {
  scopes_.front().names[{id}] = text;
  if (given_.insert(id).second) forget_repetitions();
}

void ExpressionWriter::forget_repetitions() {
  repetitions_.emplace(dag_, [this](ExprId id) { return given_.contains(id); });
}

Family ExpressionWriter::reduced(Family family) const {
  for (std::size_t i = scopes_.size(); i-- > 1;) {
    const Scope& scope = scopes_[i];
    if (family.size() != scope.size) continue;
    Family outer;
    for (std::size_t at = 0; at < family.size(); at += scope.turns) {
      const auto first = family.begin() + static_cast<std::ptrdiff_t>(at);
      const auto is_first = [&first](ExprId id) { return id == *first; };
      if (!std::all_of(first, first + static_cast<std::ptrdiff_t>(scope.turns), is_first))
        return family;
      outer.push_back(*first);
    }
    family = std::move(outer);
  }
  return family;
}

std::size_t ExpressionWriter::scope_of(const Family& reduced) const {
  std::size_t scope = 0;
  while (scopes_[scope].size != reduced.size()) ++scope;
  return scope;
}

std::string ExpressionWriter::value(const Family& family) {
  const Family own = reduced(family);
  const std::map<Family, std::string>& names = scopes_[scope_of(own)].names;
  if (const auto found = names.find(own); found != names.end()) return found->second;
  if (own.size() > 1) {
    name(own);
  } else {
    for (const ExprId id : without_names(own.front())) name({id});
  }
  return scopes_[scope_of(own)].names.at(own);
}

// Gives a name to what has none yet.
void ExpressionWriter::name(const Family& family) {
  const std::size_t scope = scope_of(family);
  if (scopes_[scope].names.contains(family)) return;
  std::string name = named(family);
  scopes_[scope].names.emplace(family, std::move(name));
}

// What the root needs besides what has names, operands first. Loops see to their own operands.
std::vector<ExprId> ExpressionWriter::without_names(ExprId root) {
  std::set<ExprId> needed;
  std::vector<ExprId> open = {root};
  while (!open.empty()) {
    const ExprId id = open.back();
    open.pop_back();
    if (scopes_.front().names.contains({id}) || !needed.insert(id).second) continue;
    if (repetitions_->of({id}) != nullptr) continue;
    open.insert(open.end(), dag_[id].operands.begin(), dag_[id].operands.end());
  }
  return {needed.begin(), needed.end()};
}

std::string ExpressionWriter::statements(std::size_t indent) const {
  std::string text;
  for (const Scope& scope : scopes_) {
    for (const std::string& line : scope.lines) text += fmt::format("{:{}}{}\n", "", indent, line);
  }
  return text;
}

void ExpressionWriter::add_line(std::string line) {
  scopes_.back().lines.push_back(std::move(line));
}

std::string ExpressionWriter::new_name(char kind) const {
  std::size_t names = reserved_;
  for (const Scope& scope : scopes_) names += scope.names.size();
  return fmt::format("{}{}", kind, names);
}

// One that no expression gets.
std::string ExpressionWriter::reserved_name(char kind) {
  std::string name = new_name(kind);
  ++reserved_;
  return name;
}

// Constants and indices are written as they are, everything else gets a variable.
std::string ExpressionWriter::named(const Family& family) {
  const ExprId id = family.front();
  const Node& node = dag_[id];
  switch (node.op) {
    case Op::const_bool_: return dag_.boolean_of(id) ? "true" : "false";
    case Op::const_int_:
      return family.size() > 1 ? varying(family) : integer_text(dag_.integer_of(id));
    case Op::const_wide_:
      return family.size() > 1 ? varying(family) : wide_text(dag_.integer_of(id));
    case Op::const_real_:
      return family.size() > 1 ? varying(family) : in_precision(number_text(dag_.real_of(id)));
    case Op::score_: return score_;
    case Op::unit_: return "unit";
    case Op::batch_: return varying_.batch ? "b" : "0";
    case Op::head_: return varying_.head ? "h" : "0";
    case Op::row_: return varying_.row ? "row" : "0";
    case Op::column_: return varying_.column ? "column" : "0";
    case Op::dim_: return fmt::format("{}", attention_.dims[*ir::parse_dim(dag_.symbol_of(id))]);
    default: break;
  }
  if (const Repetition* repetition = repetitions_->of(family)) return looped(family, *repetition);
  for (std::size_t i = 0; family.size() > 1 && i < node.operands.size(); ++i) {
    (void)value(operands_of(dag_, family, i));
  }
  std::string name = new_name('v');
  const std::string value = node.is(Op::load_) ? load(family, name) : operation(family);
  const std::size_t scope = scope_of(family);
  scopes_[scope].lines.push_back(fmt::format("const {} {} = {};", c_type(node.type), name, value));
  if (!numbers_.empty()) track(family, name);
  return name;
}

// Numbers that differ from turn to turn.
std::string ExpressionWriter::varying(const Family& constants) {
  const ir::Type of = dag_[constants.front()].type;
  if (of != ir::Type::real) {
    std::vector<std::int64_t> values;
    for (const ExprId id : constants) values.push_back(dag_.integer_of(id));
    return of == ir::Type::wide ? varying_wide(values) : varying_integer(values);
  }
  std::vector<std::int64_t> whole;
  std::vector<std::string> texts;
  for (const ExprId id : constants) {
    const double value = dag_.real_of(id);
    texts.push_back(in_precision(number_text(value)));
    if (std::abs(value) < kExact && value == std::floor(value)) {
      whole.push_back(static_cast<std::int64_t>(value));
    }
  }
  const auto linear = whole.size() == texts.size() ? as_linear(whole) : std::nullopt;
  const std::string_view type = c_type(ir::Type::real);
  return linear ? fmt::format("({}){}", type, *linear) : table(type, texts);
}

std::string ExpressionWriter::varying_integer(const std::vector<std::int64_t>& values) {
  if (std::optional<std::string> linear = as_linear(values)) return std::move(*linear);
  std::vector<std::string> texts;
  for (const std::int64_t value : values) texts.push_back(integer_text(value));
  return table("int", texts);
}

std::string ExpressionWriter::varying_wide(const std::vector<std::int64_t>& values) {
  if (const auto linear = as_linear(values)) return fmt::format("((long long){})", *linear);
  std::vector<std::string> texts;
  for (const std::int64_t value : values) texts.push_back(wide_text(value));
  return table("long long", texts);
}

// A number that grows by the same in each turn of a loop. The first loop is the outermost.
std::optional<std::string> ExpressionWriter::as_linear(
    const std::vector<std::int64_t>& values) const {
  std::string text = values.front() == 0 ? "" : fmt::format("{}", values.front());
  std::vector<std::int64_t> steps;
  std::size_t inside = values.size();
  for (std::size_t i = 1; inside > 1; ++i) {
    inside /= scopes_[i].turns;
    const auto is_small = [](std::int64_t x) { return x >= -kExact && x <= kExact; };
    if (!is_small(values.front()) || !is_small(values[inside])) return std::nullopt;
    const std::int64_t step = values[inside] - values.front();
    steps.push_back(step);
    if (step == 0) continue;
    if (!text.empty()) text += " + ";
    text += step == 1 ? scopes_[i].variable : fmt::format("{} * {}", step, scopes_[i].variable);
  }
  for (std::size_t at = 0; at < values.size(); ++at) {
    std::int64_t value = values.front();
    std::size_t rest = at;
    for (std::size_t i = steps.size(); i-- > 0;) {
      value += steps[i] * static_cast<std::int64_t>(rest % scopes_[i + 1].turns);
      rest /= scopes_[i + 1].turns;
    }
    if (value != values[at]) return std::nullopt;
  }
  const bool is_name = text.find(' ') == std::string::npos;
  return text.empty() ? "0" : is_name ? text : fmt::format("({})", text);
}

// An element of a table, by the number of the turn.
std::string ExpressionWriter::table(std::string_view type, const std::vector<std::string>& values) {
  const std::string name = reserved_name('k');
  scopes_.front().lines.push_back(
      fmt::format("static constexpr {} {}[] = {{{}}};", type, name, fmt::join(values, ", ")));
  std::string turn = scopes_[1].variable;
  for (std::size_t i = 2; scopes_[i - 1].size < values.size(); ++i) {
    turn = fmt::format("({}) * {} + {}", turn, scopes_[i].turns, scopes_[i].variable);
  }
  return fmt::format("{}[{}]", name, turn);
}

std::string ExpressionWriter::looped(const Family& family, const Repetition& repetition) {
  const Node& node = dag_[family.front()];
  const auto deeper = scopes_.begin() + static_cast<std::ptrdiff_t>(scope_of(family)) + 1;
  std::vector<Scope> inside(std::make_move_iterator(deeper),
                            std::make_move_iterator(scopes_.end()));
  scopes_.erase(deeper, scopes_.end());
  reserved_ += names_of(inside);
  Sum sum{node.op, node.type, reserved_name('v'), scopes_.size() - 1};
  add_line(fmt::format("{} {} = {};", c_type(node.type), sum.name,
                       in_precision(neutral(node.op, node.type))));
  for (const Family& term : repetition.others) add_term(term, sum);
  for (const Repetition::Terms& terms : repetition.loops) add_loop(terms, sum);
  if (sum.fault != "0") scopes_.back().faults[family] = sum.fault;
  reserved_ -= names_of(inside);
  std::ranges::move(inside, std::back_inserter(scopes_));
  return sum.name;
}

std::size_t ExpressionWriter::names_of(const std::vector<Scope>& scopes) {
  std::size_t names = 0;
  for (const Scope& scope : scopes) names += scope.names.size();
  return names;
}

// What is decided looks at no more terms, unless their faults count. Kernels have the text once for
// each score of a thread, so that unrolled loops would take minutes to compile.
void ExpressionWriter::add_loop(const Repetition::Terms& terms, Sum& sum) {
  const std::string turn = reserved_name('j');
  scopes_.push_back({turn, terms.turns, terms.turns * scopes_.back().size});
  add_term(terms.members, sum);
  const Scope body = std::move(scopes_.back());
  scopes_.pop_back();
  reserved_ += body.names.size();
  std::string more;
  if (numbers_.empty() && sum.op == Op::or_) more = " && !" + sum.name;
  if (numbers_.empty() && sum.op == Op::and_) more = " && " + sum.name;
  add_line("#pragma unroll 1");
  add_line(fmt::format("for (int {0} = 0; {0} < {1}{2}; ++{0}) {{", turn, terms.turns, more));
  for (const std::string& line : body.lines) add_line("  " + line);
  add_line("}");
}

void ExpressionWriter::add_term(const Family& term, Sum& sum) {
  const std::string text = in_parentheses(value(term)), fault = fault_of(term);
  const bool decides = sum.op == Op::and_ || sum.op == Op::or_;
  sum.scored |= depends_on_score(term.front());
  if (fault != "0" && sum.fault == "0") {
    sum.fault = "f" + sum.name.substr(1);
    scopes_[sum.scope].lines.push_back(fmt::format("int {} = 0;", sum.fault));
  }
  if (sum.fault != "0" && !decides) {
    add_line(fmt::format("{0} = {0} != 0 ? {0} : {1};", sum.fault, fault));
  } else if (sum.fault != "0") {
    add_line(fmt::format("{} = {};", sum.fault,
                         either_fault(sum.op, {sum.name, sum.fault}, {text, fault}, sum.scored)));
  }
  const std::string pattern = pattern_of(sum.op, sum.type);
  add_line(fmt::format("{} = {};", sum.name, fmt::format(fmt::runtime(pattern), sum.name, text)));
}

std::string ExpressionWriter::operation(const Family& family) {
  const Node& node = dag_[family.front()];
  if (node.is(Op::param_)) {
    return fmt::format("({})p_{}", c_type(node.type), dag_.symbol_of(family.front()));
  }
  std::string text = pattern_of(node.op, dag_[node.operands[0]].type);
  if (precision_ == Precision::in_single) text = faster_pattern(family).value_or(text);
  std::vector<std::string> operands;
  for (std::size_t i = 0; i < node.operands.size(); ++i) operands.push_back(operand(family, i));
  operands.resize(3);
  return fmt::format(fmt::runtime(text), operands[0], operands[1], operands[2]);
}

std::string ExpressionWriter::pattern_of(Op op, ir::Type operands) const {
  std::string_view pattern = other_pattern(op);
  if (pattern.empty()) {
    pattern = operands == ir::Type::integer ? integer_pattern(op)
              : operands == ir::Type::wide  ? wide_pattern(op)
                                            : real_pattern(op);
  }
  return in_precision(std::string(pattern));
}

// A faster form of operations that take long for each score. Quotients of reals are rounded
// correctly, because masks compare them, or round them to integers.
std::optional<std::string> ExpressionWriter::faster_pattern(const Family& family) {
  const Node& node = dag_[family.front()];
  if (node.type == ir::Type::real) {
    if (node.is(Op::floordiv_)) return "floorf(__fdiv_rn({0}, {1}))";
    if (node.is(Op::mod_)) return "{0} - {1} * floorf(__fdiv_rn({0}, {1}))";
    if (node.is(Op::div_)) return "__fdiv_rn({0}, {1})";
    if (node.is(Op::rsqrt_)) return "rsqrtf({0})";
    if (node.is(Op::sigmoid_)) return "attn_sigmoid({0})";
    return std::nullopt;
  }
  const bool divides = node.is(Op::floordiv_), rests = node.is(Op::mod_);
  if ((!divides && !rests) || !dag_[node.operands[1]].is(Op::const_int_)) return std::nullopt;
  if (!is_same(operands_of(dag_, family, 1))) return std::nullopt;
  const std::int64_t by = dag_.integer_of(node.operands[1]);
  if (by < 1) return std::nullopt;
  if (std::has_single_bit(static_cast<std::uint64_t>(by))) {
    const int bits = std::countr_zero(static_cast<std::uint64_t>(by));
    return divides ? fmt::format("{{0}} >> {}", bits) : fmt::format("{{0}} & {}", by - 1);
  }
  const Family dividends = operands_of(dag_, family, 0);
  const auto is_negative = [this](ExprId id) { return ranges_[id].low < 0; };
  if (std::ranges::any_of(dividends, is_negative)) return std::nullopt;
  return fmt::format("(int)((unsigned){{0}} {} {}u)", divides ? '/' : '%', by);
}

std::string_view ExpressionWriter::c_type(ir::Type type) const {
  switch (type) {
    case ir::Type::boolean: return "bool";
    case ir::Type::integer: return "int";
    case ir::Type::wide: return "long long";
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

std::string ExpressionWriter::operand(const Family& family, std::size_t i) const {
  const Family own = reduced(operands_of(dag_, family, i));
  return in_parentheses(scopes_[scope_of(own)].names.at(own));
}

std::string ExpressionWriter::load(const Family& family, const std::string& name) {
  const Node& node = dag_[family.front()];
  const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(family.front()));
  const std::string read =
      left_out_.contains(tensor.name)
          ? neutral(Op::add_, node.type)
          : in_precision(
                converted(tensor.dtype, fmt::format("t_{}[{}]", tensor.name, element(family))));
  const bool fails =
      std::ranges::any_of(family, [this](ExprId id) { return may_fail(attention_, ranges_, id); });
  if (!fails) return read;
  scopes_[scope_of(family)].lines.push_back(
      fmt::format("const bool {}_out = {};", name, failure(family)));
  return fmt::format("{}_out ? {} : {}", name, node.type == ir::Type::boolean ? "false" : "0",
                     read);
}

std::string ExpressionWriter::element(const Family& loads) {
  const Node& node = dag_[loads.front()];
  const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(loads.front()));
  const bool is_short = precision_ == Precision::in_single && has_short_offsets(attention_, tensor);
  std::string offset = "0";
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const std::string index = operand(loads, i);
    offset = i == 0
                 ? fmt::format("{}{}", is_short ? "" : "(long long)", index)
                 : fmt::format("({}) * {} + {}", offset, extent_of(attention_, tensor, i), index);
  }
  return offset;
}

}  // namespace attn::codegen
