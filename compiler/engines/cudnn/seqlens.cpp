#include "compiler/codegen/steps.h"
#include "compiler/engines/cudnn/fused.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/rewrite/pass.h"

namespace attn::engines::strategy {

Result<double> seqlens::bound(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  ATTN_RETURN_IF_ERROR(subject.context().backward() ? check_attention(attention)
                                                    : check_forward(attention));
  const std::optional<masks::Padding>& padding = subject.padding();
  if (!padding) {
    const bool has_lengths = attention.lengths_q || attention.lengths_kv;
    return unsupported(attention.pos, has_lengths
                                          ? "no mask ends batches at a length of their own where "
                                            "the spec has no lengths yet"
                                          : "no mask ends batches at a length of their own");
  }
  Subject padded(padding->attention, subject.context());
  return padded.predicted_ms_of_form();
}

Result<Lowered> seqlens::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  const ir::Attention& attention = subject.attention();
  const masks::Padding& padding = *subject.padding();
  Subject padded(padding.attention, subject.context());
  ATTN_ASSIGN(Lowered lowered, fused(padded));
  if (lowered.program.check) {
    return unsupported(attention.pos, "what is gathered is checked with lengths that are bound");
  }
  for (Coverage& each : lowered.kernels) {
    each.attention = padding.attention;
    each.attention.lengths_q = each.attention.lengths_q && !padding.rows;
    each.attention.lengths_kv = each.attention.lengths_kv && !padding.columns;
    each.bands->rows = padding.rows;
    each.bands->columns = padding.columns;
  }
  lowered.program = codegen::with_lengths(attention, padding, std::move(lowered.program));
  return lowered;
}

}  // namespace attn::engines::strategy
