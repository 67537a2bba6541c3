#include "compiler/engines/unfused/lower_unfused.h"

#include <functional>

#include "compiler/codegen/scores.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/no_keys.h"
#include "compiler/engines/shared/products.h"
#include "compiler/engines/shared/row_kernel.h"
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

}  // namespace

Result<plan::Program> lower_unfused(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_forward(attention));
  if (attention.dims[ir::Dim::Skv] == 0 && attention.is_sigmoid()) return no_keys(attention);
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

}  // namespace attn::engines
