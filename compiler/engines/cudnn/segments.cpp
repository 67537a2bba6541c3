#include "compiler/engines/cudnn/fused.h"
#include "compiler/engines/cudnn/lower_segments.h"
#include "compiler/engines/cudnn/parts.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/unsupported.h"

namespace attn::engines {
namespace {

// What engines::segments does not check.
Status check_segments(const ir::Attention& attention) {
  if (attention.dropout && !attention.dropout->keep) {
    return unsupported(attention.dropout->pos, "segments would each draw their own random numbers");
  }
  if (attention.lengths_q || attention.lengths_kv) {
    return unsupported(attention.pos, "batches that have lengths are not cut further");
  }
  return {};
}

Result<Lowered> as_ragged(Subject& subject, const Segments& segments) {
  const ir::Attention& attention = subject.attention();
  const target::Context& context = subject.context();
  ATTN_ASSIGN(const ir::Attention ragged, engines::ragged(attention, segments, context.backward()));
  double ms = predicted_ms(segments, attention.dims[ir::Dim::Sq], context);
  ATTN_ASSIGN(Lowered lowered, fused(ragged, context, ms));
  ATTN_ASSIGN(plan::Program joined, of_segments(attention, segments, std::move(lowered.program)));
  for (Coverage& each : lowered.kernels) {
    each.what = "one kernel of cuDNN's, over segments";
    each.segments = segments.tensor;
    each.by_batch = segments.by_batch;
    // Those of the segments.
    each.attention.lengths_q = each.attention.lengths_kv = false;
  }
  Lowered made{std::move(joined), ms};
  made.kernels = std::move(lowered.kernels);
  return made;
}

// Time of a forward of blocks, against that of parts of other masks: as documents of equal lengths
// were measured.
constexpr double kOfBlocks = 0.9;

// Where segments of equal length fill a batch.
Result<Lowered> as_blocks(Subject& subject, const Segments& segments) {
  Subject blocks(*segments.blocks, subject.context());
  ATTN_ASSIGN(Lowered lowered, in_parts(blocks));
  if (!subject.context().backward()) lowered.predicted_ms *= kOfBlocks;
  ATTN_ASSIGN(lowered.program,
              with_declared(subject.attention(), segments, std::move(lowered.program)));
  return lowered;
}

}  // namespace

namespace strategy {

Result<double> segments::bound(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (subject.context().backward()) {
    ATTN_RETURN_IF_ERROR(check_gradients(attention));
  } else {
    ATTN_RETURN_IF_ERROR(check_forward(attention));
  }
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  ATTN_RETURN_IF_ERROR(check_segments(attention));
  const std::optional<Segments>& found = subject.segments();
  if (!found) {
    return unsupported(attention.pos,
                       "no mask tells segments apart by a tensor that is declared "
                       "monotone, with a number of runs, where all else depends on "
                       "distances between rows and columns");
  }
  if (found->blocks) return 0.0;
  return predicted_ms(*found, attention.dims[ir::Dim::Sq], subject.context());
}

Result<Lowered> segments::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  const Segments& found = *subject.segments();
  if (found.blocks) {
    Result<Lowered> folded = as_blocks(subject, found);
    if (folded.ok() || folded.error().code != ErrorCode::unsupported) return folded;
  }
  return as_ragged(subject, found);
}

}  // namespace strategy
}  // namespace attn::engines
