#include "compiler/derive/steps.h"
#include "compiler/engines/cudnn/fused.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/lowering/common/checks.h"
#include "compiler/lowering/common/unsupported.h"
#include "compiler/passes/rewrite/kernel_form.h"
#include "compiler/passes/strategy/cost.h"

namespace attn::engines::strategy {

Result<double> seqlens::bound(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  ATTN_RETURN_IF_ERROR(subject.context().backward() ? lowering::check_attention(attention)
                                                    : lowering::check_forward(attention));
  const std::optional<passes::Padding>& padding = subject.padding();
  if (!padding) {
    const bool has_lengths = attention.lengths_q || attention.lengths_kv;
    return lowering::unsupported(
        attention.pos, has_lengths ? "no mask ends batches at a length of their own where "
                                     "the spec has no lengths yet"
                                   : "no mask ends batches at a length of their own");
  }
  Subject padded(padding->attention, subject.context());
  return padded.predicted_ms_of_form();
}

Result<Lowered> seqlens::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  const ir::Attention& attention = subject.attention();
  const passes::Padding& padding = *subject.padding();
  Subject padded(padding.attention, subject.context());
  ATTN_ASSIGN(Lowered lowered, fused(padded));
  if (lowered.program.check) {
    return lowering::unsupported(attention.pos,
                                 "what is gathered is checked with lengths that are bound");
  }
  for (lowering::Coverage& each : lowered.kernels) {
    each.attention = padding.attention;
    each.attention.lengths_q = each.attention.lengths_q && !padding.rows;
    each.attention.lengths_kv = each.attention.lengths_kv && !padding.columns;
    each.bands->rows = padding.rows;
    each.bands->columns = padding.columns;
  }
  lowered.program = derive::with_lengths(attention, padding, std::move(lowered.program));
  return lowered;
}

}  // namespace attn::engines::strategy
