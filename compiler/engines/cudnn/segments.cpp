#include "compiler/lowering/strategy/segments.h"

#include "compiler/engines/cudnn/fused.h"
#include "compiler/engines/cudnn/parts.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/lowering/common/checks.h"
#include "compiler/lowering/common/unsupported.h"

namespace attn::engines {
namespace {

// What passes::segments does not check.
Status check_segments(const ir::Attention& attention) {
  if (attention.dropout && !attention.dropout->keep) {
    return lowering::unsupported(attention.dropout->pos,
                                 "segments would each draw their own random numbers");
  }
  if (attention.lengths_q || attention.lengths_kv) {
    return lowering::unsupported(attention.pos, "batches that have lengths are not cut further");
  }
  return {};
}

Result<Lowered> as_ragged(Subject& subject, const passes::Segments& segments) {
  const ir::Attention& attention = subject.attention();
  const planning::Context& context = subject.context();
  ATTN_ASSIGN(const ir::Attention ragged,
              lowering::ragged(attention, segments, context.backward()));
  double predicted_ms = passes::predicted_ms(segments, attention.dims[ir::Dim::Sq], context);
  ATTN_ASSIGN(Lowered lowered, fused(ragged, context, predicted_ms));
  ATTN_ASSIGN(plan::Program joined,
              lowering::of_segments(attention, segments, std::move(lowered.program)));
  for (lowering::Coverage& each : lowered.kernels) {
    each.what = "one kernel of cuDNN's, over segments";
    each.segments = segments.tensor;
    each.by_batch = segments.by_batch;
    // Those of the segments.
    each.attention.lengths_q = each.attention.lengths_kv = false;
  }
  Lowered made{std::move(joined), predicted_ms};
  made.kernels = std::move(lowered.kernels);
  return made;
}

// Where segments of equal length fill a batch.
Result<Lowered> as_blocks(Subject& subject, const passes::Segments& segments) {
  Subject blocks(*segments.blocks, subject.context());
  ATTN_ASSIGN(Lowered lowered, in_parts(blocks));
  ATTN_ASSIGN(lowered.program,
              lowering::with_declared(subject.attention(), segments, std::move(lowered.program)));
  return lowered;
}

}  // namespace

namespace strategy {

Result<double> segments::bound(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (subject.context().backward()) {
    ATTN_RETURN_IF_ERROR(lowering::check_gradients(attention));
  } else {
    ATTN_RETURN_IF_ERROR(lowering::check_forward(attention));
  }
  ATTN_RETURN_IF_ERROR(lowering::check_attention(attention));
  ATTN_RETURN_IF_ERROR(check_segments(attention));
  const std::optional<passes::Segments>& found = subject.segments();
  if (!found) {
    return lowering::unsupported(attention.pos,
                                 "no mask tells segments apart by a tensor that is declared "
                                 "monotone, with a number of runs, where all else depends on "
                                 "distances between rows and columns");
  }
  if (found->blocks) return 0.0;
  return passes::predicted_ms(*found, attention.dims[ir::Dim::Sq], subject.context());
}

Result<Lowered> segments::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  const passes::Segments& found = *subject.segments();
  if (found.blocks) {
    Result<Lowered> folded = as_blocks(subject, found);
    if (folded.ok() || folded.error().code != ErrorCode::unsupported) return folded;
  }
  return as_ragged(subject, found);
}

}  // namespace strategy
}  // namespace attn::engines
