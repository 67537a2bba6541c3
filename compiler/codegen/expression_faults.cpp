// Faults of nodes, and the part of ExpressionWriter that tracks them.
#include "compiler/codegen/expression_faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/codegen/expression_writer.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

// The bounds of what an operation takes in this place, where others have no value.
struct OperandDomain {
  std::size_t operand;
  std::int64_t low, high;
};

// The domains of integer divisions, whose divisor is on one side of 0, and of shifts.
std::vector<OperandDomain> domains_of(const Node& node) {
  switch (node.op) {
    case Op::floordiv_:
    case Op::mod_:
      if (!ir::is_integral(node.type)) return {};
      return {{1, 1, INT64_MAX}, {1, INT64_MIN, -1}};
    case Op::shift_left_:
    case Op::shift_right_: return {{1, 0, ir::most_shift(node.type)}};
    default: return {};
  }
}

bool is_within(const masks::Range& range, std::int64_t low, std::int64_t high) {
  return range.low >= low && range.high <= high;
}

}  // namespace

std::int64_t extent_of(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                       std::size_t axis) {
  return *ir::fold_integer(attention.dag, tensor.extents[axis], attention.dims);
}

bool may_fail(const ir::Attention& attention, masks::WholeRanges& ranges, ExprId id) {
  const Node& node = attention.dag[id];
  if (node.is(Op::load_)) {
    const ir::CapturedTensor& tensor = *attention.find_tensor(attention.dag.symbol_of(id));
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const std::int64_t last = extent_of(attention, tensor, i) - 1;
      if (!is_within(ranges[node.operands[i]], 0, last)) return true;
    }
    return false;
  }
  const std::vector<OperandDomain> domains = domains_of(node);
  return !domains.empty() && std::ranges::none_of(domains, [&](const OperandDomain& domain) {
    return is_within(ranges[node.operands[domain.operand]], domain.low, domain.high);
  });
}

std::vector<ExprId> faults_of(const ir::Attention& attention,
                              const std::vector<ExprId>& expressions) {
  masks::WholeRanges ranges(attention);
  std::vector<ExprId> faults = ir::reachable(attention.dag, expressions);
  std::erase_if(faults, [&](ExprId id) { return !may_fail(attention, ranges, id); });
  return faults;
}

std::vector<ExprId> unproven_indices(const ir::Attention& attention, ExprId load) {
  const Node& node = attention.dag[load];
  const ir::CapturedTensor& tensor = *attention.find_tensor(attention.dag.symbol_of(load));
  std::vector<ExprId> unproven;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const std::int64_t last = extent_of(attention, tensor, i) - 1;
    const masks::Range range = masks::range_of(attention, node.operands[i]);
    if (!is_within(range, 0, last)) unproven.push_back(node.operands[i]);
  }
  return unproven;
}

// A condition; empty if the operand is known to be in range.
std::string ExpressionWriter::out_of_range(const Family& family, std::size_t i, std::int64_t low,
                                           std::int64_t high) {
  bool below = false, above = false;
  for (const ExprId id : operands_of(dag_, family, i)) {
    const masks::Range range = ranges_[id];
    below |= range.low < low;
    above |= range.high > high;
  }
  std::string text;
  if (below) text = fmt::format("{} < {}", operand(family, i), low);
  if (above) {
    text += fmt::format("{}{} > {}", text.empty() ? "" : " || ", operand(family, i), high);
  }
  return text;
}

std::string ExpressionWriter::failure(const Family& family) {
  const Node& node = dag_[family.front()];
  if (node.is(Op::floordiv_) || node.is(Op::mod_)) return operand(family, 1) + " == 0";
  if (!node.is(Op::load_)) return out_of_range(family, 1, 0, ir::most_shift(node.type));
  const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(family.front()));
  std::string text;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const std::string one = out_of_range(family, i, 0, extent_of(attention_, tensor, i) - 1);
    if (!one.empty()) text += (text.empty() ? "" : " || ") + one;
  }
  return text;
}

std::string ExpressionWriter::fault_of(const Family& family) const {
  const Family own = reduced(family);
  const std::map<Family, std::string>& faults = scopes_[scope_of(own)].faults;
  const auto found = faults.find(own);
  return found == faults.end() ? "0" : found->second;
}

std::string ExpressionWriter::fault_of(const Family& family, std::size_t i) const {
  return fault_of(operands_of(dag_, family, i));
}

// A variable for the fault of a node that may have one.
void ExpressionWriter::track(const Family& family, const std::string& name) {
  Scope& scope = scopes_[scope_of(family)];
  const std::string text = tracked(family);
  if (text == "0") return;
  if (text.starts_with('f') && text.find(' ') == std::string::npos) {  // an operand's
    scope.faults[family] = text;
    return;
  }
  const std::string fault = fmt::format("f{}", name.substr(1));
  scope.faults[family] = fault;
  scope.lines.push_back(fmt::format("const int {} = {};", fault, text));
}

std::string ExpressionWriter::tracked(const Family& family) {
  const Node& node = dag_[family.front()];
  if (node.is(Op::select_)) {
    const std::string condition = fault_of(family, 0);
    const std::string x = fault_of(family, 1), y = fault_of(family, 2);
    if (condition == "0" && x == "0" && y == "0") return "0";
    const std::string branch = depends_on_score(node.operands[0])
                                   ? fmt::format("{} != 0 ? {} : 0", x, y)
                                   : fmt::format("{} ? {} : {}", operand(family, 0), x, y);
    return condition == "0" ? branch : fmt::format("{0} != 0 ? {0} : {1}", condition, branch);
  }
  if (node.is(Op::and_) || node.is(Op::or_)) {
    const std::string x = fault_of(family, 0), y = fault_of(family, 1);
    if (x == "0" && y == "0") return "0";
    const bool scored = depends_on_score(node.operands[0]) || depends_on_score(node.operands[1]);
    return either_fault(node.op, {operand(family, 0), x}, {operand(family, 1), y}, scored);
  }
  const std::string before = operands_fault(family);
  if (!numbers_.contains(family.front())) return before;
  const std::string own = fmt::format("{} ? {} : 0", failure(family), number_of(family));
  return before == "0" ? own : fmt::format("{0} != 0 ? {0} : {1}", before, own);
}

// Each member's among the faults.
std::string ExpressionWriter::number_of(const Family& family) {
  std::vector<std::int64_t> numbers;
  for (const ExprId id : family) numbers.push_back(numbers_.contains(id) ? numbers_.at(id) : 0);
  return family.size() > 1 ? varying_integer(numbers) : fmt::format("{}", numbers.front());
}

// The fault of the first operand that has one.
std::string ExpressionWriter::operands_fault(const Family& family) const {
  std::string text = "0";
  for (std::size_t i = dag_[family.front()].operands.size(); i-- > 0;) {
    const std::string one = fault_of(family, i);
    if (one == "0") continue;
    text = text == "0" ? one : fmt::format("({0} != 0 ? {0} : {1})", one, text);
  }
  return text;
}

// No fault if one side has a value that decides.
std::string ExpressionWriter::either_fault(Op op, const Side& x, const Side& y, bool scored) {
  if (scored) return fmt::format("{} != 0 ? {} : 0", x.fault, y.fault);
  const char* decides = op == Op::and_ ? "!" : "";
  return fmt::format("{0} == 0 && {4}{2} || {1} == 0 && {4}{3} ? 0 : {0} != 0 ? {0} : {1}", x.fault,
                     y.fault, x.value, y.value, decides);
}

bool ExpressionWriter::depends_on_score(ExprId id) const {
  const ExprId roots[] = {id};
  return std::ranges::any_of(ir::reachable(dag_, roots),
                             [this](ExprId node) { return dag_[node].is(Op::score_); });
}

}  // namespace attn::codegen
