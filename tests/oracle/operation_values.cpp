// Prints what the compiler computes of each operation, for operations_test.py, a line each with
// tabs:
//
//   value OP TYPE RESULT OPERANDS.. FOLDED EVALUATED       "-": no value; of wide, none is folded
//   slope OP OPERAND OPERANDS.. SYMBOLIC REVERSE           by OPERAND, 0 or 1
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <optional>

#include "compiler/gradient/differentiate.h"
#include "compiler/ir/value.h"
#include "compiler/reference/operation.h"
#include "compiler/reference/reverse.h"
#include "tests/unit/compiler/masks/example.h"

namespace attn {
namespace {

using ir::Constant;
using ir::ExprId;
using ir::Op;
using ir::Type;

std::vector<Constant> samples(Type type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (type == Type::boolean) return {false, true};
  std::vector<Constant> all;
  if (type == Type::integer) {
    for (const std::int64_t each :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{2}, std::int64_t{3},
          std::int64_t{-7}, std::int64_t{31}, std::int64_t{32}, std::int64_t{1} << 20, kMost,
          kMost - 1, -kMost, -kMost - 1}) {
      all.emplace_back(each);
    }
    return all;
  }
  if (type == Type::wide) {
    constexpr std::int64_t kMostWide = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t each :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{3}, std::int64_t{-7},
          std::int64_t{32}, std::int64_t{63}, std::int64_t{64}, kMost + 1, -kMost - 2,
          std::int64_t{1} << 40, (std::int64_t{1} << 53) + 1, kMostWide, kMostWide - 1, -kMostWide,
          -kMostWide - 1}) {
      all.emplace_back(each);
    }
    return all;
  }
  for (const double each :
       {0.0,  -0.0,         1.0,           -1.0,   0.5,    -1.5,      2.0,        -3.0,
        7.25, 1e-9,         -1e-9,         5e-324, 30.0,   -30.0,     700.0,      -800.0,
        1e10, 2147483647.5, -2147483648.5, 1e300,  -1e300, kInfinity, -kInfinity, kNaN}) {
    all.emplace_back(each);
  }
  return all;
}

// All combinations.
std::vector<std::vector<Constant>> operands_of(const std::vector<Type>& types) {
  std::vector<std::vector<Constant>> all = {{}};
  for (const Type type : types) {
    std::vector<std::vector<Constant>> longer;
    for (const auto& operands : all) {
      for (const Constant& next : samples(type)) {
        longer.push_back(operands);
        longer.back().push_back(next);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string text(double value) { return fmt::format("{:a}", value); }

std::string text(const Constant& value) {
  if (const auto* real = std::get_if<double>(&value)) return text(*real);
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "1" : "0";
  return fmt::format("{}", std::get<std::int64_t>(value));
}

std::string text(const reference::Cell& cell, Type type) {
  if (cell.fault) return "-";
  if (type == Type::wide) return fmt::format("{}", reference::wide_of(cell.value));
  return type == Type::real ? text(cell.value) : fmt::format("{:.0f}", cell.value);
}

ExprId constant(ir::Dag& dag, const Constant& value, Type type) {
  return type == Type::wide ? dag.wide(std::get<std::int64_t>(value))
                            : ir::add_constant(dag, value, {});
}

reference::Cell evaluated(Op op, const std::vector<Constant>& operands,
                          const std::vector<Type>& types) {
  ir::Attention attention = masks::testing::example(1, 1);
  std::vector<ExprId> ids;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    ids.push_back(constant(attention.dag, operands[i], types[i]));
  }
  const ExprId roots[] = {attention.dag.add(op, ids)};
  const reference::Bindings none;
  reference::RowEvaluator evaluator(attention, none, roots);
  const double score = 0;
  evaluator.run({}, std::span(&score, 1));
  return evaluator.cells(roots[0])[0];
}

void print_values(Op op, Type type) {
  std::vector<Type> types(static_cast<std::size_t>(ir::info(op).operands), type);
  if (op == Op::select_) types[0] = Type::boolean;
  const std::optional<Type> result = ir::result_type(ir::info(op).rule, types);
  if (!result) return;
  for (const std::vector<Constant>& operands : operands_of(types)) {
    std::vector<std::string> words;
    for (const Constant& each : operands) words.push_back(text(each));
    const auto folded = type == Type::wide ? std::nullopt : ir::fold(op, operands);
    fmt::print("value\t{}\t{}\t{}\t{}\t{}\t{}\n", ir::info(op).name, ir::to_string(type),
               ir::to_string(*result), fmt::join(words, "\t"), folded ? text(*folded) : "-",
               text(evaluated(op, operands, types), *result));
  }
}

// Slopes of op(score, u[0]) or op(score).
class Slopes {
 public:
  explicit Slopes(Op op) : op_(op), dag_(attention_.dag) {
    attention_.tensors = {{"u", DType::f32, {dag_.integer(1)}, {}, true}};
    const ExprId index[] = {dag_.integer(0)};
    leaves_ = {dag_.leaf(Op::score_), dag_.add_symbol(Op::load_, "u", Type::real, index)};
    leaves_.resize(static_cast<std::size_t>(ir::info(op).operands));
    roots_ = {dag_.add(op, leaves_)};
    for (const ExprId leaf : leaves_) {
      roots_.push_back(gradient::derivative(dag_, roots_[0], leaf));
    }
  }

  void print(double x, double y) {
    reference::Bindings bindings;
    bindings.tensors["u"] = {DType::f64, {1}, {y}};
    reference::RowEvaluator evaluator(attention_, bindings, roots_);
    evaluator.run({}, std::span(&x, 1));
    reference::ReverseMode reverse(dag_, evaluator, roots_[0]);
    reverse.run(0, 1);
    const std::string operands = leaves_.size() == 1 ? text(x) : text(x) + "\t" + text(y);
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      fmt::print("slope\t{}\t{}\t{}\t{}\t{}\n", ir::info(op_).name, i, operands,
                 text(evaluator.cells(roots_[i + 1])[0].value),
                 text(reverse.cotangent(leaves_[i])));
    }
  }

 private:
  Op op_;
  ir::Attention attention_ = masks::testing::example(1, 1);
  ir::Dag& dag_;
  std::vector<ExprId> leaves_, roots_;  // the value and its derivatives
};

void print_slopes(Op op) {
  constexpr double kPlaces[] = {-6.5, -2.25, -0.7, -1e-3, 0.3, 1, 1.6, 4, 11};
  Slopes slopes(op);
  for (const double x : kPlaces) {
    for (const double y : kPlaces) {
      slopes.print(x, y);
      if (ir::info(op).operands == 1) break;
    }
  }
}

void print_all() {
  for (const Op op : ir::all_ops()) {
    if (ir::info(op).operands <= 0) continue;
    for (const Type type : {Type::boolean, Type::integer, Type::wide, Type::real}) {
      print_values(op, type);
    }
    if (ir::info(op).rule == ir::Rule::real_function) print_slopes(op);
  }
}

}  // namespace
}  // namespace attn

int main() {
  attn::print_all();
  return 0;
}
