#include "compiler/reference/prologues.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "compiler/ir/prologues.h"
#include "compiler/reference/bindings.h"
#include "compiler/reference/problem.h"
#include "compiler/reference/reverse.h"
#include "compiler/reference/row_evaluator.h"

namespace attn::reference {
namespace {

using ir::Dim;
using ir::ExprId;

bool is_one_of(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Evaluates the sums and the elements of one row after another.
class PrologueRows {
 public:
  PrologueRows(const ir::PrologueView& view, const Bindings& bindings)
      : view_(view), bindings_(bindings), scores_(static_cast<std::size_t>(view.columns())) {
    const io::HostTensor& x = bindings.tensors.at(view.tensor);
    bindings_.tensors[view.x] = x;
    bindings_.tensors[view.sums_of_row] =
        zeros(DType::f64, {static_cast<std::int64_t>(std::max<std::size_t>(1, view.sums.size()))});
    for (const ExprId sum : view.sums) evaluators_.push_back(evaluator(sum));
    evaluators_.push_back(evaluator(view.value));
  }

  std::size_t columns() const { return scores_.size(); }
  // What evaluates the terms of a sum or, behind these, the elements.
  const RowEvaluator& evaluator_of(std::size_t root) const { return *evaluators_[root]; }
  double value(std::size_t column) const {
    return evaluators_.back()->cells(view_.value)[column].value;
  }

  Status run(std::int64_t row) {
    const ir::Dims& d = view_.attention.dims;
    const std::int64_t rows = d[Dim::Sq], heads = d[Dim::Hq];
    const RowPlace place{row / rows / heads, row / rows % heads, row % rows, 0};
    for (std::size_t i = 0; i < view_.sums.size(); ++i) {
      ATTN_RETURN_IF_ERROR(run(*evaluators_[i], view_.sums[i], place));
      double sum = 0;
      for (const Cell& cell : evaluators_[i]->cells(view_.sums[i])) sum += cell.value;
      bindings_.tensors.at(view_.sums_of_row).values[i] = sum;
    }
    return run(*evaluators_.back(), view_.value, place);
  }

 private:
  std::unique_ptr<RowEvaluator> evaluator(ExprId root) const {
    return std::make_unique<RowEvaluator>(view_.attention, bindings_, std::span(&root, 1));
  }

  Status run(RowEvaluator& evaluator, ExprId root, const RowPlace& place) {
    evaluator.run(place, scores_);
    const std::vector<Cell>& cells = evaluator.cells(root);
    const auto bad =
        std::ranges::find_if(cells, [](const Cell& cell) { return cell.fault.has_value(); });
    if (bad == cells.end()) return {};
    return evaluator.describe(*bad->fault, static_cast<std::size_t>(bad - cells.begin()));
  }

  const ir::PrologueView& view_;
  Bindings bindings_;
  std::vector<double> scores_;
  std::vector<std::unique_ptr<RowEvaluator>> evaluators_;
};

// A gradient, and the sum of squares of the sizes of its terms.
struct SizedCotangent {
  double sum = 0, squares = 0;
};

// Goes on from the gradient of what a prologue makes to those of its rows and of learned tensors.
// What is summed in `sizes` are squares.
class PrologueOnward {
 public:
  PrologueOnward(const ir::PrologueView& view, const Bindings& bindings, GradientSums& of,
                 GradientSums* sizes)
      : view_(view), rows_(view, bindings), of_(of), sizes_(sizes), sums_(view.sums.size()) {
    for (std::size_t i = 0; i <= view.sums.size(); ++i) {
      const ExprId root = i < view.sums.size() ? view.sums[i] : view.value;
      reverse_.push_back(
          std::make_unique<ReverseMode>(view.attention.dag, rows_.evaluator_of(i), root));
    }
  }

  // The gradient of what is made, and its sizes or null.
  Status run(const io::HostTensor& made, const io::HostTensor* sizes) {
    for (std::int64_t row = 0; row < view_.rows(); ++row) {
      ATTN_RETURN_IF_ERROR(rows_.run(row));
      std::ranges::fill(sums_, SizedCotangent{});
      for (std::size_t column = 0; column < rows_.columns(); ++column) {
        const std::size_t at = static_cast<std::size_t>(row) * rows_.columns() + column;
        const double size = sizes ? sizes->values[at] : 0;
        spread(view_.sums.size(), column, {made.values[at], size * size});
      }
      for (std::size_t i = view_.sums.size(); i-- > 0;) {
        const SizedCotangent of_sum = sums_[i];
        for (std::size_t column = 0; column < rows_.columns(); ++column) spread(i, column, of_sum);
      }
    }
    return {};
  }

 private:
  void spread(std::size_t root, std::size_t column, const SizedCotangent& cotangent) {
    if (cotangent.sum == 0 && cotangent.squares == 0) return;  // whatever the row holds
    ReverseMode& reverse = *reverse_[root];
    reverse.run(column, 1);
    for (const ExprId load : reverse.loads()) {
      if (!reverse.is_reached(load)) continue;
      const double local = reverse.cotangent(load);
      const SizedCotangent part{cotangent.sum == 0 ? 0 : cotangent.sum * local,
                                cotangent.squares * local * local};
      if (view_.is_sum(load)) {
        SizedCotangent& sum = sums_[static_cast<std::size_t>(view_.number_of(load))];
        sum.sum += part.sum;
        sum.squares += part.squares;
        continue;
      }
      const std::string& name =
          view_.is_x(load) ? view_.tensor : view_.attention.dag.symbol_of(load);
      const auto found = of_.find(name);
      if (found == of_.end()) continue;
      const auto element =
          static_cast<std::size_t>(*rows_.evaluator_of(root).element(load, column));
      found->second.values[element] += part.sum;
      if (sizes_) sizes_->at(name).values[element] += part.squares;
    }
  }

  const ir::PrologueView& view_;
  PrologueRows rows_;
  GradientSums& of_;
  GradientSums* sizes_;
  std::vector<SizedCotangent> sums_;
  std::vector<std::unique_ptr<ReverseMode>> reverse_;
};

// The names whose gradients the attention of given rows has: those asked for, and q and k.
std::vector<std::string> names_beside(const ir::Attention& wanted, const ir::Attention& given,
                                      const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    const ir::CapturedTensor* tensor = given.find_tensor(name);
    if (tensor == nullptr || tensor->learned) all.push_back(name);
  }
  for (const char* name : {"q", "k"}) {
    if (ir::goes_through(wanted, name) && !is_one_of(all, name)) all.emplace_back(name);
  }
  return all;
}

}  // namespace

Result<GivenPrologues> with_prologues(const ir::Attention& attention, const Inputs& inputs,
                                      const Options& options) {
  ATTN_ASSIGN(const Bindings bindings, bind(attention, inputs, options.unrounded));
  GivenPrologues given{ir::with_prologues_given(attention), inputs};
  for (const ir::PrologueView& view : ir::prologue_views(attention)) {
    io::HostTensor& made = given.inputs.tensors.at(view.tensor);
    made.dtype = DType::f64;
    PrologueRows rows(view, bindings);
    for (std::int64_t row = 0; row < view.rows(); ++row) {
      ATTN_RETURN_IF_ERROR(rows.run(row));
      for (std::size_t column = 0; column < rows.columns(); ++column)
        made.values[static_cast<std::size_t>(row) * rows.columns() + column] = rows.value(column);
    }
  }
  return given;
}

Result<Gradients> gradients_through_prologues(const ir::Attention& attention, const Inputs& inputs,
                                              const io::HostTensor& d_o,
                                              const std::vector<std::string>& names,
                                              const Options& options) {
  ir::Attention wanted = attention;
  if (!attention.gradients.empty()) wanted.gradients = names;
  ATTN_ASSIGN(const GivenPrologues given, with_prologues(wanted, inputs, options));
  ATTN_ASSIGN(Gradients result, gradients(given.attention, given.inputs, d_o,
                                          names_beside(wanted, given.attention, names), options));
  ATTN_ASSIGN(const Bindings bindings, bind(attention, inputs, options.unrounded));
  GradientSums made, made_sizes;  // of what prologues make
  std::vector<std::string> changed = ir::learned_by_prologues(wanted);
  std::erase_if(changed, [&](const std::string& name) { return !is_one_of(names, name); });
  const std::vector<ir::PrologueView> views = ir::prologue_views(attention);
  for (const ir::PrologueView& view : views) {
    if (!ir::goes_through(wanted, view.tensor)) continue;
    made[view.tensor] = std::move(result.of.extract(view.tensor).mapped());
    if (options.sizes) made_sizes[view.tensor] = result.sizes.extract(view.tensor).mapped();
    if (is_one_of(names, view.tensor)) changed.push_back(view.tensor);
  }
  for (const std::string& name : changed) {
    const std::vector<std::int64_t>& dims = bindings.tensors.at(name).dims;
    result.of.try_emplace(name, zeros(options.unrounded ? DType::f64 : DType::f32, dims));
    if (!options.sizes) continue;
    for (double& value :
         result.sizes.try_emplace(name, zeros(DType::f64, dims)).first->second.values)
      value *= value;
  }
  for (const ir::PrologueView& view : views) {
    const auto of = made.find(view.tensor);
    if (of == made.end()) continue;
    PrologueOnward onward(view, bindings, result.of, options.sizes ? &result.sizes : nullptr);
    ATTN_RETURN_IF_ERROR(
        onward.run(of->second, options.sizes ? &made_sizes.at(view.tensor) : nullptr));
  }
  for (const std::string& name : changed) {
    const bool is_row = name == "q" || name == "k";
    const DType dtype = is_row ? attention.dtype_of("d" + name) : bindings.tensors.at(name).dtype;
    for (double& value : result.of.at(name).values)
      value = options.unrounded ? value : round_to(dtype, value);
    if (!options.sizes) continue;
    for (double& value : result.sizes.at(name).values) value = std::sqrt(value);
  }
  return result;
}

}  // namespace attn::reference
