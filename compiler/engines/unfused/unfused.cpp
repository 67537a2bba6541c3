#include <functional>

#include "compiler/codegen/scores.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/no_keys.h"
#include "compiler/engines/shared/own_kernels.h"
#include "compiler/engines/shared/products.h"
#include "compiler/engines/shared/products_backward.h"
#include "compiler/engines/shared/rows.h"
#include "compiler/engines/shared/strategy.h"
#include "compiler/engines/shared/unsupported.h"

namespace attn::engines {
namespace {

using ir::Dim;

class Unfused {
 public:
  explicit Unfused(const ir::Attention& attention) : attention_(attention), parts_(attention) {}

  Result<plan::Program> make() && {
    parts_.add_copies_in({"q", "k", "v"});
    parts_.add_internal(kProducts, DType::f32, parts_.scores_dims(parts_.columns()));
    parts_.add_product(parts_.copy("q"), turned(parts_.copy("k")),
                       parts_.scores(kProducts, DType::f32));
    add_scores();
    add_weights();
    parts_.add_copy("o");
    parts_.add_product(parts_.scores(kWeights, attention_.dtype), parts_.copy("v"),
                       parts_.copy("o"));
    parts_.add_copies_out({"o"});
    ATTN_RETURN_IF_ERROR(parts_.check_bytes());
    plan::Program program = parts_.program(std::bind_front(bound_tensors, std::cref(attention_)));
    codegen::check_scores(attention_, program);
    return program;
  }

 private:
  void add_scores() {
    const std::int64_t columns = attention_.dims[Dim::Skv];
    parts_.add_internal(kScores, DType::f32, parts_.scores_dims(columns));
    if (attention_.dropout) parts_.add_internal(kKept, DType::i32, parts_.scores_dims(columns));
    if (attention_.sink) parts_.add_internal(kSinks, DType::f32, {attention_.dims[Dim::Hq]});
    parts_.add_step(
        codegen::scores_step(attention_, {kProducts, parts_.columns(), kScores, kKept, kSinks}));
  }

  void add_weights() {
    parts_.add_internal(kWeights, attention_.dtype, parts_.scores_dims(parts_.columns()));
    parts_.add_step(
        row_kernel(attention_, {kScores, attention_.sink ? kSinks : "",
                                attention_.dropout ? kKept : "", kWeights, parts_.columns()}));
  }

  const ir::Attention& attention_;
  Products parts_;
};

// cuDNN multiplies q by k; generated kernels compute the scores from the products, and the weights
// and statistics from the scores; cuDNN multiplies the weights by v. Products, scores and weights
// are in the workspace: 10 bytes per score for bf16 and f16. q, k, v and o go through packed
// copies, so every layout works. No blocks are skipped.
//
// Errors: those of lower(); unsupported for random dropout, and if the scores take too
// much memory.
Result<plan::Program> lower_unfused(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_forward(attention));
  if (attention.dims[ir::Dim::Skv] == 0 && !attention.is_softmax()) return no_keys(attention);
  if (attention.dims[ir::Dim::Skv] == 0) {
    return unsupported(attention.pos, "without keys there are no products to compute");
  }
  if (attention.is_random()) {
    return unsupported(attention.dropout->pos, "kernels that are not fused have no random dropout",
                       "use another strategy or a mask: `dropout p, keep[b, h, q_idx, kv_idx]`");
  }
  ATTN_ASSIGN(plan::Program program, Unfused(attention).make());
  ATTN_RETURN_IF_ERROR(check_program(attention, program));
  return program;
}

// Its kernels of rows know softmax, and functions of each score.
Status check_no_quotient(const Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (!attention.quotient || attention.dims.get(ir::Dim::Skv) == 0) return {};
  return unsupported(attention.normalize_pos,
                     "kernels that are not fused compute no weights over a sum but softmax",
                     are_own_kernels_for(subject.context())
                         ? "`--engine native` does"
                         : "attnc's own kernels do, from compute capability 8.0 on");
}

// Its kernels of rows end with the product with v.
Status check_no_epilogue(const Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (!attention.epilogue) return {};
  return unsupported(attention.epilogue_pos,
                     attention.branch.empty() ? "kernels that are not fused compute no epilogue"
                                              : "kernels that are not fused combine no branches",
                     are_own_kernels_for(subject.context())
                         ? "`--engine native` does"
                         : "attnc's own kernels do, from compute capability 8.0 on");
}

// Everything that is computed for each score goes through memory.
Result<double> bound(Subject& subject) {
  ATTN_RETURN_IF_ERROR(check_not_8_bits(subject.attention(), "the unfused engine's"));
  ATTN_RETURN_IF_ERROR(check_no_quotient(subject));
  ATTN_RETURN_IF_ERROR(check_no_epilogue(subject));
  const ir::Dims& d = subject.attention().dims;
  if (!d.bound()) return 0.0;  // lowering says which is open
  const double bytes_a_score = subject.context().backward() ? 40 : 20;
  return predicted_ms_of_moving(
      bytes_a_score * static_cast<double>(d[ir::Dim::B] * d[ir::Dim::Hq]) *
          static_cast<double>(d[ir::Dim::Sq]) * static_cast<double>(d[ir::Dim::Skv]),
      subject.context().gpu);
}

Result<Lowered> lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  const target::Context& context = subject.context();
  Result<plan::Program> program =
      context.backward()
          ? lower_backward_by_products(subject.attention(), context.rewrites.score_bytes)
          : lower_unfused(subject.attention());
  ATTN_RETURN_IF_ERROR(program.status());
  ATTN_ASSIGN(const double predicted_ms, bound(subject));
  Lowered lowered{std::move(*program), predicted_ms};
  lowered.kernels = {coverage_of_all(subject.attention())};
  return lowered;
}

}  // namespace

namespace engine {

std::span<const Strategy> unfused() {
  static constexpr Strategy kStrategies[] = {
      {"unfused", "two products; attnc's kernels compute scores, softmax and weights, in memory",
       Strategy::Kind::slow, bound, lower}};
  return kStrategies;
}

}  // namespace engine

}  // namespace attn::engines
