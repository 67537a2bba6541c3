#include "compiler/reference/evaluate.h"

#include <memory>

#include "compiler/ir/prologues.h"
#include "compiler/reference/branches.h"
#include "compiler/reference/outputs.h"
#include "compiler/reference/prologues.h"
#include "compiler/reference/sums.h"
#include "compiler/reference/tasks.h"

namespace attn::reference {

Result<Outputs> evaluate(const ir::Attention& attention, const Inputs& inputs,
                         const Options& options) {
  if (!attention.branches.empty()) return evaluate_branches(attention, inputs, options);
  if (ir::has_prologue(attention)) {
    ATTN_ASSIGN(const GivenPrologues given, with_prologues(attention, inputs, options));
    return evaluate(given.attention, given.inputs, options);
  }
  if (!attention.sums.empty()) {
    ATTN_ASSIGN(const GivenSums given, with_sums(attention, inputs, options));
    return evaluate(given.attention, given.inputs, options);
  }
  ATTN_ASSIGN(const Bindings bindings, bind(attention, inputs, options.unrounded));
  ATTN_ASSIGN(const Problem problem, make_problem(attention, bindings, options.unrounded));
  ATTN_RETURN_IF_ERROR(tell_pace(problem, threads_of(options.threads), 1, options.observer));
  Outputs outputs = make_outputs(attention, options.unrounded);
  Advance advance(problem.rows(), options.observer);
  const auto make_worker = [&]() -> Worker {
    const auto epilogue = attention.epilogue ? std::make_shared<RowEpilogue>(problem)
                                             : std::shared_ptr<RowEpilogue>();
    return
        [&, epilogue, row = std::make_shared<RowSoftmax>(problem)](std::int64_t index) -> Status {
          ATTN_RETURN_IF_ERROR(row->run(index));
          ATTN_RETURN_IF_ERROR(write_row(problem, *row, epilogue.get(), index, outputs));
          advance.row();
          return {};
        };
  };
  ATTN_RETURN_IF_ERROR(run_tasks(problem.rows(), options.threads, make_worker));
  finish_outputs(problem, outputs);
  return outputs;
}

}  // namespace attn::reference
