// The lowerings that make one cuDNN plan of the whole attention.
#include <fmt/format.h>

#include "compiler/derive/steps.h"
#include "compiler/driver/lowerings.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/lowering/common/checks.h"
#include "compiler/lowering/common/interface.h"
#include "compiler/lowering/common/no_keys.h"
#include "compiler/lowering/common/unsupported.h"
#include "compiler/lowering/cudnn/captured_view.h"
#include "compiler/lowering/cudnn/lower.h"
#include "compiler/lowering/cudnn/lower_backward.h"
#include "compiler/lowering/cudnn/unified.h"
#include "compiler/lowering/strategy/block_sparse.h"
#include "compiler/lowering/strategy/parts.h"
#include "compiler/lowering/strategy/segments.h"
#include "compiler/passes/analysis/block_lists.h"
#include "compiler/passes/analysis/padding.h"
#include "compiler/passes/analysis/segments.h"
#include "compiler/passes/rewrite/cancelled.h"
#include "compiler/passes/rewrite/hoist.h"
#include "compiler/passes/rewrite/kernel_form.h"
#include "compiler/passes/strategy/cost.h"
#include "compiler/passes/strategy/partition.h"
#include "runtime/base/check.h"

namespace attn::driver::ways {
namespace {

// `extra` as in passes::HoistOptions: a backward has some.
Result<passes::Hoisted> hoisted(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                bool vectors) {
  passes::HoistOptions options;
  options.vectors = vectors;
  if (!extra.empty()) {
    options.worth_vector = passes::kWorthVectorBackward;
    options.reading = passes::kReadingBackward;
  }
  options.extra = std::move(extra);
  options.readable = [](const ir::Attention& of, ir::ExprId load) {
    return lowering::captured_view(of, load).status();
  };
  ATTN_ASSIGN(passes::Hoisted hoisted, passes::hoist(attention, options));
  const Status verified = ir::verify(hoisted.attention);
  ATTN_CHECK(verified.ok(), verified.error().message);
  return hoisted;
}

// With tables instead of vectors over the rows. Errors: unsupported where there are no vectors.
Result<passes::Hoisted> with_tables(const ir::Attention& attention, std::vector<ir::ExprId> extra) {
  ATTN_ASSIGN(const passes::Hoisted vectors, hoisted(attention, extra, true));
  ATTN_ASSIGN(passes::Hoisted tables, hoisted(attention, std::move(extra), false));
  if (ir::to_text(tables.attention) != ir::to_text(vectors.attention)) return tables;
  return lowering::unsupported(attention.pos,
                               "no tensor over the rows is read: tables do not help");
}

using Hoist = Result<passes::Hoisted> (*)(const ir::Attention& attention,
                                          std::vector<ir::ExprId> extra);

Result<passes::Hoisted> with_vectors(const ir::Attention& attention,
                                     std::vector<ir::ExprId> extra) {
  return hoisted(attention, std::move(extra), true);
}

// `form` is what the kernel computes.
Lowered predicted(plan::Program program, const ir::Attention& form, bool backward) {
  return {std::move(program), passes::predicted_ms(form, backward)};
}

Result<Lowered> forward(const ir::Attention& attention, lowering::Core core, passes::Rewrites made,
                        Hoist hoist = with_vectors) {
  // What lowering says of open dimensions is the answer.
  if (!attention.dims.bound()) return lowering::lower(attention, core).error();
  ATTN_RETURN_IF_ERROR(lowering::check_forward(attention));
  std::optional<passes::Cancelled> cancelled;
  if (made.cancelled) cancelled = passes::without_cancelled(attention);
  const ir::Attention form =
      passes::kernel_form(cancelled ? cancelled->attention : attention, false, made);
  ATTN_ASSIGN(const passes::Hoisted parts, hoist(form, {}));
  ATTN_ASSIGN(plan::Program program, lowering::lower(parts.attention, core));
  program = derive::with_derived(form, parts, std::move(program));
  if (cancelled) program = derive::with_cancelled(*cancelled, std::move(program));
  return predicted(std::move(program), form, false);
}

// Those of the fused kernel.
std::set<std::string> operand_gradients(const std::vector<std::string>& gradients) {
  std::set<std::string> names;
  for (const std::string& name : gradients) {
    if (name == "dq" || name == "dk" || name == "dv") names.insert(name);
  }
  return names;
}

Result<plan::Program> fused_backward(const ir::Attention& attention, const ir::Attention& form,
                                     std::int64_t score_bytes, Hoist hoist) {
  if (attention.dims[ir::Dim::Skv] == 0) return lowering::no_keys_backward(attention);
  const std::vector<std::string> gradients = lowering::gradient_names(attention);
  const std::set<std::string> fused = operand_gradients(gradients);
  if (fused.empty()) return lowering::lower_unfused_backward(attention, score_bytes);
  const gradient::Derivatives derivatives = gradient::differentiate(form);
  lowering::LearnedGradients learned;
  if (!derivatives.tensors.empty()) {
    ATTN_ASSIGN(learned, lowering::learned_gradients(derivatives, score_bytes));
  }
  ATTN_ASSIGN(const passes::Hoisted parts, hoist(derivatives.attention, {derivatives.score}));
  const lowering::BackwardParts backward{parts.attention, parts.extra.front(), fused};
  ATTN_ASSIGN(plan::Program program,
              lowering::lower_backward(backward, gradients, std::move(learned)));
  return derive::with_derived(derivatives.attention, parts, std::move(program));
}

Result<Lowered> backward(const ir::Attention& attention, passes::Rewrites made,
                         Hoist hoist = with_vectors) {
  ATTN_RETURN_IF_ERROR(lowering::check_attention(attention));
  ATTN_RETURN_IF_ERROR(lowering::check_gradients(attention));
  const ir::Attention form = passes::kernel_form(attention, true, made);
  ATTN_ASSIGN(plan::Program program, fused_backward(attention, form, made.score_bytes, hoist));
  return predicted(std::move(program), form, true);
}

Result<Lowered> in_direction(const ir::Attention& attention, bool is_backward,
                             passes::Rewrites made) {
  return is_backward ? backward(attention, made) : forward(attention, lowering::composite, made);
}

Result<Lowered> in_parts(const ir::Attention& attention, bool backward, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_attention(attention));
  ATTN_RETURN_IF_ERROR(lowering::check_parts(attention, backward));
  const std::optional<passes::Partition> partition =
      passes::best_partition(attention, backward, made);
  if (!partition) return lowering::unsupported(attention.pos, "the mask has no parts");
  ATTN_ASSIGN(const std::vector<lowering::Launch> launches,
              lowering::prepared(attention, partition->parts, backward));
  std::vector<lowering::PartProgram> programs;
  for (const lowering::Launch& launch : launches) {
    ATTN_ASSIGN(Lowered lowered, in_direction(launch.attention, backward, made));
    programs.push_back({launch, std::move(lowered.program)});
  }
  Result<plan::Program> joined = backward
                                     ? lowering::joined_backward(attention, std::move(programs))
                                     : lowering::joined_forward(attention, std::move(programs));
  ATTN_RETURN_IF_ERROR(joined.status());
  Lowered lowered{std::move(*joined), partition->predicted_ms};
  for (const passes::Part& part : partition->parts) lowered.parts.push_back(to_text(part));
  return lowered;
}

Result<Lowered> declared(const ir::Attention& attention, const passes::Segments& segments,
                         Lowered lowered) {
  ATTN_ASSIGN(lowered.program,
              lowering::with_declared(attention, segments, std::move(lowered.program)));
  return lowered;
}

// What passes::segments does not say.
Status check_segments(const ir::Attention& attention) {
  if (attention.dropout && !attention.dropout->keep) {
    return lowering::unsupported(attention.dropout->pos,
                                 "documents would each draw their own random numbers");
  }
  if (attention.lengths_q || attention.lengths_kv) {
    return lowering::unsupported(attention.pos, "batches that have lengths are not cut further");
  }
  return {};
}

Result<Lowered> by_segments(const ir::Attention& attention, bool backward, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_attention(attention));
  ATTN_RETURN_IF_ERROR(check_segments(attention));
  const std::optional<passes::Segments> segments = passes::segments(attention);
  if (!segments) {
    return lowering::unsupported(attention.pos,
                                 "no mask tells segments apart by a tensor that is declared "
                                 "monotone, with a number of runs, where all else depends on "
                                 "distances between rows and columns");
  }
  if (segments->blocks) {
    Result<Lowered> folded = in_parts(*segments->blocks, backward, made);
    if (folded.ok()) return declared(attention, *segments, std::move(*folded));
    if (folded.error().code != ErrorCode::unsupported) return folded;
  }
  ATTN_ASSIGN(const ir::Attention ragged, lowering::ragged(attention, *segments, backward));
  ATTN_ASSIGN(Lowered lowered, in_direction(ragged, backward, made));
  ATTN_ASSIGN(plan::Program joined,
              lowering::of_segments(attention, *segments, std::move(lowered.program)));
  return Lowered{std::move(joined),
                 passes::predicted_ms(*segments, attention.dims[ir::Dim::Sq], backward, made)};
}

// Of the tensors that kernels derive, each written and read.
double derived_bytes(const passes::Hoisted& hoisted) {
  double bytes = 0;
  for (const passes::DerivedTensor& tensor : hoisted.derived) {
    auto own = static_cast<double>(size_of(tensor.dtype));
    for (const std::int64_t extent : tensor.dims) own *= static_cast<double>(extent);
    bytes += tensor.once ? own : 2 * own;
  }
  return bytes;
}

Error without_block_lists(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  if (d[ir::Dim::Sq] % passes::kSmallestBlock != 0 ||
      d[ir::Dim::Skv] % passes::kSmallestBlock != 0) {
    return lowering::unsupported(
        attention.pos,
        fmt::format("tiles of rows and pages of columns are whole, and Sq and Skv are "
                    "no multiples of {}",
                    passes::kSmallestBlock));
  }
  return lowering::unsupported(attention.pos,
                               "no tile of rows is known to see less than all pages");
}

Result<Lowered> by_block_lists(const ir::Attention& attention, passes::Rewrites made) {
  const std::optional<passes::BlockLists> lists = passes::block_lists(attention);
  if (!lists) return without_block_lists(attention);
  ATTN_ASSIGN(const lowering::Tiled tiled, lowering::tiled(attention, *lists));
  const ir::Attention cheap = passes::kernel_form(tiled.attention, false, made);
  ATTN_ASSIGN(const passes::Hoisted parts, hoisted(cheap, {}, true));
  ATTN_ASSIGN(plan::Program program, lowering::lower(parts.attention, lowering::composite));
  program = derive::with_derived(cheap, parts, std::move(program));
  ATTN_ASSIGN(program, lowering::of_block_lists(attention, tiled, std::move(program)));
  const double moved = lowering::bytes_moved(attention, tiled) + derived_bytes(parts);
  const double predicted_ms = passes::predicted_ms_of_making(*lists, attention.dims) +
                              passes::predicted_ms(*lists, parts.attention) +
                              passes::predicted_ms_of_moving(moved);
  return Lowered{std::move(program), predicted_ms, {passes::to_text(*lists)}};
}

Result<Lowered> by_seqlens(const ir::Attention& attention, bool backward, passes::Rewrites made) {
  const std::optional<passes::Padding> padding = passes::padding(attention);
  if (!padding) {
    const bool has_lengths = attention.lengths_q || attention.lengths_kv;
    return lowering::unsupported(
        attention.pos, has_lengths ? "no mask ends batches at a length of their own where "
                                     "the spec has no lengths yet"
                                   : "no mask ends batches at a length of their own");
  }
  ATTN_ASSIGN(Lowered lowered, in_direction(padding->attention, backward, made));
  if (lowered.program.check) {
    return lowering::unsupported(attention.pos,
                                 "what is gathered is checked with lengths that are bound");
  }
  lowered.program = derive::with_lengths(attention, *padding, std::move(lowered.program));
  return lowered;
}

}  // namespace

Result<Lowered> composite(const ir::Attention& attention, passes::Rewrites made) {
  return forward(attention, lowering::composite, made);
}

Result<Lowered> unified(const ir::Attention& attention, passes::Rewrites made) {
  return forward(attention, lowering::unified, made);
}

Result<Lowered> composite_backward(const ir::Attention& attention, passes::Rewrites made) {
  return backward(attention, made);
}

Result<Lowered> tables(const ir::Attention& attention, passes::Rewrites made) {
  return forward(attention, lowering::composite, made, with_tables);
}

Result<Lowered> tables_backward(const ir::Attention& attention, passes::Rewrites made) {
  return backward(attention, made, with_tables);
}

Result<Lowered> parts(const ir::Attention& attention, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_forward(attention));
  return in_parts(attention, false, made);
}

Result<Lowered> parts_backward(const ir::Attention& attention, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_gradients(attention));
  return in_parts(attention, true, made);
}

Result<Lowered> segments(const ir::Attention& attention, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_forward(attention));
  return by_segments(attention, false, made);
}

Result<Lowered> documents_backward(const ir::Attention& attention, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_gradients(attention));
  return by_segments(attention, true, made);
}

Result<Lowered> block_sparse(const ir::Attention& attention, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_forward(attention));
  return by_block_lists(attention, made);
}

Result<Lowered> block_sparse_backward(const ir::Attention& attention, passes::Rewrites) {
  return lowering::unsupported(attention.pos, "cuDNN has no backward that reads pages");
}

Result<Lowered> seqlens(const ir::Attention& attention, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_forward(attention));
  return by_seqlens(attention, false, made);
}

Result<Lowered> seqlens_backward(const ir::Attention& attention, passes::Rewrites made) {
  ATTN_RETURN_IF_ERROR(lowering::check_attention(attention));
  return by_seqlens(attention, true, made);
}

Result<Lowered> unified_backward(const ir::Attention& attention, passes::Rewrites) {
  return lowering::unsupported(attention.pos, "cuDNN has no backward as one node that builds");
}

}  // namespace attn::driver::ways
