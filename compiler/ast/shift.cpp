#include "compiler/ast/ast.h"
#include "compiler/ast/walk.h"

namespace attn::ast {

void shift(Spec& spec, std::uint32_t offset) {
  const auto move = [offset](Span& span) {
    span.begin += offset;
    span.end += offset;
  };
  Walk(move, [](Expr&) {})(spec);
}

}  // namespace attn::ast
