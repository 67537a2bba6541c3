#include "compiler/ir/op.h"

#include <algorithm>
#include <array>

namespace attn::ir {
namespace {

constexpr OpInfo kInfos[] = {
#define ATTN_OP(name, id, operands, rule, attribute, doc) \
  {#name, id, operands, Rule::rule, AttributeKind::attribute, doc},
#include "compiler/ir/ops.def"
#undef ATTN_OP
};

constexpr Op kOps[] = {
#define ATTN_OP(name, id, operands, rule, attribute, doc) Op::name##_,
#include "compiler/ir/ops.def"
#undef ATTN_OP
};

constexpr bool ids_ascend() {
  for (std::size_t i = 1; i < std::size(kInfos); ++i) {
    if (kInfos[i - 1].id >= kInfos[i].id) return false;
  }
  return true;
}
static_assert(ids_ascend(), "ops.def: ids are unique and ascend");

constexpr std::string_view kTypeNames[] = {"bool", "int", "wide", "real"};

bool all_are(std::span<const Type> types, Type wanted) {
  return std::ranges::all_of(types, [&](Type type) { return type == wanted; });
}

// The common type of numbers, if they have one.
std::optional<Type> common_number(std::span<const Type> types) {
  if (types.empty() || types.front() == Type::boolean) return std::nullopt;
  if (!all_are(types, types.front())) return std::nullopt;
  return types.front();
}

std::optional<Type> type_if(bool fits, Type type) {
  return fits ? std::optional(type) : std::nullopt;
}

}  // namespace

const OpInfo& info(Op op) { return kInfos[static_cast<std::size_t>(op)]; }

std::span<const Op> all_ops() { return kOps; }

std::optional<Op> parse_op(std::string_view name) {
  for (Op op : kOps) {
    if (info(op).name == name) return op;
  }
  return std::nullopt;
}

std::string_view to_string(Type type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::optional<Type> parse_type(std::string_view text) {
  for (Type type : {Type::boolean, Type::integer, Type::wide, Type::real}) {
    if (to_string(type) == text) return type;
  }
  return std::nullopt;
}

std::optional<Type> result_type(Rule rule, std::span<const Type> operands) {
  switch (rule) {
    case Rule::boolean_leaf: return type_if(operands.empty(), Type::boolean);
    case Rule::integer_leaf: return type_if(operands.empty(), Type::integer);
    case Rule::wide_leaf: return type_if(operands.empty(), Type::wide);
    case Rule::real_leaf: return type_if(operands.empty(), Type::real);
    case Rule::symbol_type: return std::nullopt;
    case Rule::arithmetic: return common_number(operands);
    case Rule::real_function: return type_if(all_are(operands, Type::real), Type::real);
    case Rule::comparison: return type_if(common_number(operands).has_value(), Type::boolean);
    case Rule::logic: return type_if(all_are(operands, Type::boolean), Type::boolean);
    case Rule::selection:
      return type_if(
          operands.size() == 3 && operands[0] == Type::boolean && operands[1] == operands[2],
          operands.size() == 3 ? operands[1] : Type::boolean);
    case Rule::bits:
      if (all_are(operands, Type::wide)) return Type::wide;
      return type_if(all_are(operands, Type::integer), Type::integer);
    case Rule::to_real:
      return type_if(operands.size() == 1 && operands[0] != Type::real, Type::real);
    case Rule::to_int: return type_if(all_are(operands, Type::boolean), Type::integer);
    case Rule::truncate: return type_if(all_are(operands, Type::real), Type::integer);
    case Rule::widen: return type_if(all_are(operands, Type::integer), Type::wide);
    case Rule::narrow: return type_if(all_are(operands, Type::wide), Type::integer);
  }
  return std::nullopt;
}

}  // namespace attn::ir
