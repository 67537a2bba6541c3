#include "compiler/driver/driver.h"

namespace attn::driver {

Result<plan::Program> lower(const ir::Attention& attention, std::string_view lowering,
                            const target::Context& context) {
  planner::Search search(attention, lowering, context);
  ATTN_ASSIGN(const planner::Candidate* best, search.next());
  return best->lowered->program;
}

Result<plan::Program> lower(const ir::Attention& attention, std::string_view lowering,
                            plan::Direction direction, target::Rewrites made) {
  return lower(attention, lowering, target::Context{.direction = direction, .rewrites = made});
}

target::Context context_of(const CompileOptions& options) {
  return {.gpu = target::gpu_of(options.target),
          .direction = options.direction,
          .rewrites = options.rewrites,
          .analyses = options.analyses,
          .timeout = options.worker.timeout};
}

Result<std::unique_ptr<planner::Search>> search_of(const ir::Attention& attention,
                                                   const CompileOptions& options) {
  const target::Context context = context_of(options);
  const bool trained = options.paired || options.direction == plan::Direction::backward ||
                       !attention.gradients.empty() || attention.wants_lse;
  if (!trained) return std::make_unique<planner::Search>(attention, options.lowering, context);
  return planner::Pair(attention, options.lowering, context).search(options.direction);
}

ir::Attention training_forward(ir::Attention attention) {
  attention.wants_o = true;
  attention.wants_lse = !attention.is_pointwise();
  attention.wants_o_inner = attention.epilogue.has_value();
  attention.wants_branches = !attention.branches.empty();
  return attention;
}

}  // namespace attn::driver
