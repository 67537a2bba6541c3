#include <fmt/format.h>

#include <cmath>

#include "compiler/ir/attention.h"
#include "compiler/ir/text.h"

namespace attn::ir {
namespace {

// How tightly a piece of text binds; a looser piece is parenthesized.
enum class Binding { disjunction, conjunction, comparison, sum, product, prefix, primary };

struct Piece {
  std::string text;
  Binding binding = Binding::primary;
};

struct Infix {
  std::string_view sign;
  Binding binding;
};

std::optional<Infix> infix_of(Op op) {
  switch (op) {
    case Op::or_: return Infix{"||", Binding::disjunction};
    case Op::and_: return Infix{"&&", Binding::conjunction};
    case Op::lt_: return Infix{"<", Binding::comparison};
    case Op::le_: return Infix{"<=", Binding::comparison};
    case Op::gt_: return Infix{">", Binding::comparison};
    case Op::ge_: return Infix{">=", Binding::comparison};
    case Op::eq_: return Infix{"==", Binding::comparison};
    case Op::ne_: return Infix{"!=", Binding::comparison};
    case Op::add_: return Infix{"+", Binding::sum};
    case Op::sub_: return Infix{"-", Binding::sum};
    case Op::mul_: return Infix{"*", Binding::product};
    case Op::div_: return Infix{"/", Binding::product};
    case Op::floordiv_: return Infix{"//", Binding::product};
    case Op::mod_: return Infix{"%", Binding::product};
    default: return std::nullopt;
  }
}

// Bit operations have different precedence in C and Python, so they are always parenthesized.
std::optional<std::string_view> careful_infix_of(Op op) {
  switch (op) {
    case Op::pow_: return "**";
    case Op::bit_and_: return "&";
    case Op::bit_or_: return "|";
    case Op::bit_xor_: return "^";
    case Op::shift_left_: return "<<";
    case Op::shift_right_: return ">>";
    default: return std::nullopt;
  }
}

std::string hold(const Piece& piece, Binding at_least) {
  return piece.binding < at_least ? "(" + piece.text + ")" : piece.text;
}

Binding tighter(Binding binding) { return static_cast<Binding>(static_cast<int>(binding) + 1); }

// Shared nodes are printed at every use, so the text of a small DAG may be exponentially long.
constexpr int kLongest = 1000;

Piece number(std::string text) {
  const bool negative = text.starts_with('-');
  return {std::move(text), negative ? Binding::prefix : Binding::primary};
}

bool has_32_bits(std::int64_t value) { return value >= INT32_MIN && value <= INT32_MAX; }

// A sign is an operation, and the least integer has no positive counterpart.
Piece integer(std::int64_t value) {
  if (value != INT32_MIN) return number(std::to_string(value));
  return {fmt::format("{} - 1", value + 1), Binding::sum};
}

Piece wide_number(std::int64_t value) {
  if (has_32_bits(value)) return {fmt::format("long({})", integer(value).text)};
  return {fmt::format("long({})", value)};
}

class SourceWriter {
 public:
  SourceWriter(const Dag& dag, std::string_view row_name) : dag_(dag), row_name_(row_name) {}

  Piece piece(ExprId id) {
    if (++pieces_ > kLongest) return {"..."};
    const Node& node = dag_[id];
    if (node.operands.empty()) return leaf(node);
    if (const auto infix = infix_of(node.op)) return infix_piece(node, *infix);
    if (const auto sign = careful_infix_of(node.op)) return careful_piece(node, *sign);
    return other(node);
  }

 private:
  Piece leaf(const Node& node) const {
    if (node.is(Op::index_)) return {fmt::format("i{}", std::get<std::int64_t>(node.attribute))};
    if (node.is(Op::row_sum_))
      return {fmt::format("row_sum({})", std::get<std::int64_t>(node.attribute))};
    switch (node.op) {
      case Op::batch_: return {"b"};
      case Op::head_: return {"h"};
      case Op::row_: return {std::string(row_name_)};
      case Op::column_: return {"kv_idx"};
      case Op::output_: return {"o"};
      case Op::depth_: return {"d_idx"};
      case Op::const_bool_: return {std::get<bool>(node.attribute) ? "true" : "false"};
      case Op::const_wide_: return wide_number(std::get<std::int64_t>(node.attribute));
      case Op::const_int_: return integer(std::get<std::int64_t>(node.attribute));
      case Op::const_real_: return number(real_text(std::get<double>(node.attribute)));
      case Op::dim_:
      case Op::param_:
      case Op::load_: return {std::get<std::string>(node.attribute)};
      default: return {std::string(info(node.op).name)};
    }
  }

  Piece infix_piece(const Node& node, const Infix& infix) {
    // All operators are left-associative. Comparisons chain, so both operands are parenthesized.
    const bool chains = infix.binding == Binding::comparison;
    const Binding left = chains ? tighter(infix.binding) : infix.binding;
    return {fmt::format("{} {} {}", hold(operand(node, 0), left), infix.sign,
                        hold(operand(node, 1), tighter(infix.binding))),
            infix.binding};
  }

  Piece careful_piece(const Node& node, std::string_view sign) {
    return {fmt::format("{} {} {}", hold(operand(node, 0), Binding::primary), sign,
                        hold(operand(node, 1), Binding::primary)),
            node.is(Op::pow_) ? Binding::prefix : Binding::disjunction};
  }

  Piece other(const Node& node) {
    switch (node.op) {
      case Op::not_: return prefixed("!", node);
      case Op::neg_: return prefixed("-", node);
      case Op::bit_not_: return prefixed("~", node);
      case Op::select_: return call("where", node);
      case Op::load_: return {std::get<std::string>(node.attribute) + "[" + list(node) + "]"};
      case Op::to_int_: return {fmt::format("where({}, 1, 0)", piece(node.operands[0]).text)};
      case Op::truncate_: return {fmt::format("int({})", piece(node.operands[0]).text)};
      case Op::widen_: return {fmt::format("long({})", piece(node.operands[0]).text)};
      case Op::narrow_: return narrowed(node);
      case Op::to_real_: return explicit_real(node);
      default: return call(info(node.op).name, node);
    }
  }

  // An index and a comparison imply it; of lower halves, `int` does.
  Piece narrowed(const Node& node) {
    const std::optional<ExprId> whole = whole_of_half(dag_[node.operands[0]]);
    return whole ? Piece{fmt::format("int({})", piece(*whole).text)} : piece(node.operands[0]);
  }

  // x, if the node is `x << 32 >> 32`.
  std::optional<ExprId> whole_of_half(const Node& node) const {
    if (!is_shift_by_half(node, Op::shift_right_)) return std::nullopt;
    const Node& upper = dag_[node.operands[0]];
    return is_shift_by_half(upper, Op::shift_left_) ? std::optional(upper.operands[0])
                                                    : std::nullopt;
  }

  bool is_shift_by_half(const Node& node, Op shift) const {
    if (!node.is(shift) || node.type != Type::wide) return false;
    const ExprId count = node.operands[1];
    return dag_[count].is(Op::const_wide_) && dag_.integer_of(count) == 32;
  }

  Piece prefixed(std::string_view sign, const Node& node) {
    return {fmt::format("{}{}", sign, hold(operand(node, 0), Binding::primary)), Binding::prefix};
  }

  Piece call(std::string_view name, const Node& node) {
    return {fmt::format("{}({})", name, list(node))};
  }

  std::string list(const Node& node) {
    std::string text;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      text += (i == 0 ? "" : ", ") + operand(node, i).text;
    }
    return text;
  }

  // The language converts an integer to a real next to a real, so the conversion is only printed
  // where it is not implied.
  Piece operand(const Node& user, std::size_t index) {
    const Node& node = dag_[user.operands[index]];
    if (node.is(Op::widen_) && is_beside_wide(user, index)) return piece(node.operands[0]);
    if (node.is(Op::const_wide_) && is_beside_wide(user, index)) {
      const auto value = std::get<std::int64_t>(node.attribute);
      if (has_32_bits(value)) return integer(value);
    }
    const bool converts = node.is(Op::to_real_) && is_integral(dag_[node.operands[0]].type);
    return converts && is_real_context(user, index) ? piece(node.operands[0])
                                                    : piece(user.operands[index]);
  }

  // Whether the integer need not say that it is wide.
  bool is_beside_wide(const Node& user, std::size_t index) const {
    for (std::size_t i = 0; i < user.operands.size(); ++i) {
      const Node& other = dag_[user.operands[i]];
      const bool is_made = other.is(Op::widen_) || other.is(Op::const_wide_);
      if (i != index && other.type == Type::wide && !is_made) return true;
    }
    return false;
  }

  bool is_real_context(const Node& user, std::size_t index) const {
    if (info(user.op).rule == Rule::real_function) return true;
    for (std::size_t i = 0; i < user.operands.size(); ++i) {
      const Node& other = dag_[user.operands[i]];
      if (i != index && other.type == Type::real && !other.is(Op::to_real_)) return true;
    }
    return false;
  }

  Piece explicit_real(const Node& node) {
    const Piece inner = piece(node.operands[0]);
    if (dag_[node.operands[0]].type == Type::boolean) {
      return {fmt::format("where({}, 1.0, 0.0)", inner.text)};
    }
    return {hold(inner, Binding::product) + " * 1.0", Binding::product};
  }

  const Dag& dag_;
  std::string_view row_name_;
  int pieces_ = 0;
};

}  // namespace

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  const bool looks_integer = text.find_first_not_of("-0123456789") == std::string::npos;
  return looks_integer ? text + ".0" : text;
}

std::string to_source(const Dag& dag, ExprId id) {
  return SourceWriter(dag, "q_raw").piece(id).text;
}

std::string to_source(const Attention& attention, ExprId id) {
  const bool aligned = attention.align == Align::bottom_right;
  return SourceWriter(attention.dag, aligned ? "q_raw" : "q_idx").piece(id).text;
}

}  // namespace attn::ir
