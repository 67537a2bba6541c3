#include "compiler/engines/native/native.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "compiler/codegen/scores.h"
#include "compiler/codegen/steps.h"
#include "compiler/engines/native/cost.h"
#include "compiler/engines/native/expressions.h"
#include "compiler/engines/native/kernel_names.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/strategy.h"
#include "compiler/masks/axes.h"
#include "compiler/rewrite/pass.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;
using masks::Axes;

class TableMaker {
 public:
  explicit TableMaker(const ir::Attention& attention)
      : attention_(attention), dag_(attention.dag), dependence_(attention.dag) {}

  std::optional<rewrite::Hoisted> make() {
    native::MaskTerms terms = native::terms_of_masks(attention_);
    std::vector<ExprId> table, others = std::move(terms.by_indices);
    for (const ExprId term : terms.by_tensors) {
      (is_simple(term) ? others : table).push_back(term);
    }
    if (operations_on(table) < kWorthTable) return std::nullopt;
    rewrite::DerivedTensor derived = tensor_of(table);
    double bytes = 2;
    for (const std::int64_t extent : derived.dims) bytes *= static_cast<double>(extent);
    if (!derived.axes.both_sides() || bytes > kMostTableBytes) return std::nullopt;
    rewrite::Hoisted made{attention_, {}, {}};
    ir::Dag& dag = made.attention.dag;
    for (const ExprId term : table) {
      const bool first = term == table.front();
      derived.expression = first ? term : dag.add(Op::and_, {derived.expression, term});
    }
    others.push_back(declared(derived, made.attention));
    made.attention.masks = std::move(others);
    made.derived.push_back(std::move(derived));
    return made;
  }

 private:
  // Operations of a term that is computed where it is read.
  static constexpr double kSimple = 16;

  bool is_simple(ExprId term) { return operations_on({term}) < kSimple; }

  // Counts what depends on the column: the rest is computed once a row.
  double operations_on(const std::vector<ExprId>& terms) {
    double operations = 0;
    for (const ExprId id : ir::reachable(dag_, terms)) {
      if (dependence_[id].column) operations += cost_of(dag_[id]);
    }
    return operations;
  }

  // Divisions by constants are shifts and products.
  double cost_of(const ir::Node& node) const {
    const bool divides = node.is(Op::floordiv_) || node.is(Op::mod_);
    const bool is_cheap = divides && dag_.is_constant(node.operands[1]);
    return is_cheap ? 2 : rewrite::cost_for_each_score(node);
  }

  rewrite::DerivedTensor tensor_of(const std::vector<ExprId>& terms) {
    rewrite::DerivedTensor derived;
    for (const ExprId term : terms) derived.axes = derived.axes | dependence_[term];
    derived.name = attention_.unused_name("mask_table");
    derived.dtype = DType::bf16;
    const ir::Dims& dims = attention_.dims;
    if (derived.axes.batch) derived.dims.push_back(dims[Dim::B]);
    if (derived.axes.head) derived.dims.push_back(dims[Dim::Hq]);
    derived.dims.insert(derived.dims.end(), {dims[Dim::Sq], dims[Dim::Skv]});
    return derived;
  }

  // The table's element at each score.
  ExprId declared(const rewrite::DerivedTensor& derived, ir::Attention& attention) {
    ir::Dag& dag = attention.dag;
    const ir::SourcePos pos = dag[derived.expression].pos;
    ir::CapturedTensor tensor;
    tensor.name = derived.name;
    tensor.dtype = derived.dtype;
    tensor.pos = pos;
    for (const std::int64_t extent : derived.dims) tensor.extents.push_back(dag.integer(extent));
    attention.tensors.push_back(std::move(tensor));
    std::vector<ExprId> indices;
    if (derived.axes.batch) indices.push_back(dag.leaf(Op::batch_));
    if (derived.axes.head) indices.push_back(dag.leaf(Op::head_));
    indices.insert(indices.end(), {dag.leaf(Op::row_), dag.leaf(Op::column_)});
    const ExprId load = dag.add_symbol(Op::load_, derived.name, ir::Type::real, indices, pos);
    return dag.add(Op::gt_, {load, dag.real(0, pos)}, pos);
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  masks::Dependence dependence_;
};

Result<double> bound_of_native(Subject& subject) {
  ATTN_RETURN_IF_ERROR(check_native(subject.attention(), subject.context()));
  return predicted_ms_of_moving(0, subject.context().gpu);
}

// A kernel that spills registers is slower than a kernel with the next tile. But a few spills are
// allowed in a backward, whose last step is outside of its loop, beside an epilogue, which acts
// where a tile ends, and for a Dv that only one tile serves, since cuDNN would take five times as
// long. The kernel that makes lists may spill any number, because it makes them once.
std::optional<nvrtc::KernelLimits> limits(const Subject& subject) {
  constexpr std::int64_t kFew = 64;         // bytes
  constexpr std::int64_t kOfOneTile = 256;  // Dv, above which there is one
  if (kWatched) return std::nullopt;
  const ir::Attention& attention = subject.attention();
  const bool may = subject.context().backward() || attention.epilogue ||
                   attention.dims[ir::Dim::Dv] > kOfOneTile;
  return nvrtc::KernelLimits{.spilled_bytes = may ? kFew : 0, .may_spill = native::kListsKernel};
}

// Bound values are checked for all expressions, not only those of the table.
plan::Program with_table(const ir::Attention& attention, const rewrite::Hoisted& hoisted,
                         plan::Program program) {
  program = codegen::with_derived(attention, hoisted, std::move(program));
  codegen::check_scores(attention, program);
  return program;
}

Result<Lowered> lower_again_to_native(Subject& subject, std::size_t refused) {
  ATTN_RETURN_IF_ERROR(bound_of_native(subject).status());
  Tabled* const table = tabled(subject);
  Subject& of_kernel = table != nullptr ? table->subject : subject;
  const auto predicted = [&](const NativeWork& work) {
    return predicted_ms_of_native(of_kernel, work);
  };
  ATTN_ASSIGN(NativeProgram made, native_programs(of_kernel).make(refused, predicted));
  double predicted_ms = predicted_ms_of_native(of_kernel, made.work);
  if (table != nullptr) {
    predicted_ms += predicted_ms_of_deriving(table->hoisted, subject.context().gpu);
    made.program = with_table(subject.attention(), table->hoisted, std::move(made.program));
    if (made.coverage) made.coverage->attention = subject.attention();
  }
  Lowered lowered{std::move(made.program), predicted_ms, std::move(made.parts), limits(subject)};
  lowered.unmeasured = made.work.of_warps && !subject.context().gpu.measured;
  if (made.coverage) lowered.kernels.push_back(std::move(*made.coverage));
  return lowered;
}

Result<Lowered> lower_to_native(Subject& subject) { return lower_again_to_native(subject, 0); }

}  // namespace

std::optional<rewrite::Hoisted> with_mask_table(const ir::Attention& attention) {
  return TableMaker(attention).make();
}

NativePrograms& native_programs(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  return *subject.kept<NativePrograms>([&] {
    return std::make_unique<NativePrograms>(
        rewrite::run_pass("ranges", attention, subject.context()),
        masks::varying(subject.mask().axes(), attention.dims), subject.context());
  });
}

Tabled* tabled(Subject& subject) {
  return subject.kept<Tabled>([&]() -> std::unique_ptr<Tabled> {
    if (subject.attention().gather) return nullptr;  // columns are not those of the masks
    std::optional<rewrite::Hoisted> made = with_mask_table(subject.attention());
    return made ? std::make_unique<Tabled>(std::move(*made), subject.context()) : nullptr;
  });
}

namespace engine {

std::span<const Strategy> native() {
  static constexpr Strategy kStrategies[] = {{"native",
                                              "attnc's own kernels over the blocks that masks "
                                              "show, from sm_80 on",
                                              Strategy::Kind::alternative, bound_of_native,
                                              lower_to_native, lower_again_to_native, true,
                                              native::what_of_launch}};
  return kStrategies;
}

}  // namespace engine

}  // namespace attn::engines
