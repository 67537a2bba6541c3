#include "compiler/lowering/unfused/unfused.h"

#include "compiler/driver/lowerings.h"
#include "compiler/lowering/unfused/unfused_backward.h"
#include "compiler/passes/strategy/cost.h"

namespace attn::driver::ways {

namespace {

// Everything that is made for each score goes through memory.
double predicted_ms(const ir::Attention& attention, double bytes_a_score) {
  const ir::Dims& d = attention.dims;
  return passes::predicted_ms_of_moving(
      bytes_a_score * static_cast<double>(d[ir::Dim::B] * d[ir::Dim::Hq]) *
      static_cast<double>(d[ir::Dim::Sq]) * static_cast<double>(d[ir::Dim::Skv]));
}

}  // namespace

Result<Lowered> unfused(const ir::Attention& attention, passes::Rewrites) {
  ATTN_ASSIGN(plan::Program program, lowering::lower_unfused(attention));
  return Lowered{std::move(program), predicted_ms(attention, 20)};
}

Result<Lowered> unfused_backward(const ir::Attention& attention, passes::Rewrites made) {
  ATTN_ASSIGN(plan::Program program, lowering::lower_unfused_backward(attention, made.score_bytes));
  return Lowered{std::move(program), predicted_ms(attention, 40)};
}

}  // namespace attn::driver::ways
