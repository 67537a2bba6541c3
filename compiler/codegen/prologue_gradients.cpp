#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/codegen/prologue_text.h"
#include "compiler/codegen/prologues.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::Op;

// Statements that load a row of its own for each warp.
std::string load_row(const PrologueRows& rows) {
  return place_text(*rows.view, "number", 4) + "    float* x = rows[warp][0];\n" + loaded(rows) +
         "    __syncwarp();\n";
}

// What goes on from the gradient of what one prologue makes: the derivatives of its value and sums.
class OnwardRow {
 public:
  explicit OnwardRow(const ir::PrologueView& view) : view_(view), attention_(view.attention) {
    for (std::size_t i = 0; i <= view.sums.size(); ++i) {
      const ExprId root = root_of(i);
      for (const ExprId id : ir::reachable(view.attention.dag, std::span(&root, 1))) {
        const ir::Node& node = view.attention.dag[id];
        if (!node.is(Op::load_) || node.type != ir::Type::real) continue;
        const ExprId local = gradient::derivative(attention_.dag, root, id);
        const bool is_nothing =
            attention_.dag[local].is(Op::const_real_) && attention_.dag.real_of(local) == 0;
        if (!is_nothing) paths_.push_back({i, id, local});
      }
    }
  }

  struct Path {
    std::size_t root;  // the number of a sum, or that of all sums for the value
    ExprId load, local;
  };

  const ir::PrologueView& view() const { return view_; }
  const ir::Attention& attention() const { return attention_; }  // with derivatives

  std::vector<Path> paths_to(const std::string& tensor) const {
    std::vector<Path> found;
    std::ranges::copy_if(paths_, std::back_inserter(found), [&](const Path& path) {
      return attention_.dag.symbol_of(path.load) == tensor;
    });
    return found;
  }

  // The cotangent of a root, at this column.
  std::string cotangent(std::size_t root) const {
    return root == view_.sums.size() ? "dy[column]" : fmt::format("dsum{}", root);
  }

  // Statements that declare the gradients of the sums, last to first.
  std::string sums_text() const {
    std::string text;
    for (std::size_t i = view_.sums.size(); i-- > 0;) {
      RowWriter writer(attention_, view_);
      std::string body;
      for (const Path& path : paths_) {
        if (!view_.is_sum(path.load) || view_.number_of(path.load) != static_cast<std::int64_t>(i))
          continue;
        const std::string local = writer.value(path.local);
        body += fmt::format("      if ({1} != 0) dsum{0} += {1} * ({2});\n", i,
                            cotangent(path.root), local);
      }
      text +=
          fmt::format("    float dsum{0} = 0;\n{1}    dsum{0} = kernels::sum_of_lanes(dsum{0});\n",
                      i, loop_text(view_.columns(), writer.statements(6) + body));
    }
    return text;
  }

  // Statements that add what goes on to the elements of the row, in the order of paths. Where
  // nothing comes back, as past the lengths, a row may hold anything.
  std::string elements_text() const {
    std::string text;
    for (const Path& path : paths_to(view_.x)) {
      RowWriter writer(attention_, view_);
      const std::string local = writer.value(path.local), at = writer.column_of(path.load);
      text += loop_text(view_.columns(),
                        fmt::format("{0}      if ({2} != 0) atomicAdd(&dx[{1}], {2} * ({3}));\n",
                                    writer.statements(6), at, cotangent(path.root), local)) +
              "    __syncwarp();\n";
    }
    return text;
  }

  std::vector<ExprId> locals() const {
    std::vector<ExprId> all = view_.sums;
    for (const Path& path : paths_) {
      all.push_back(path.local);
      const std::vector<ExprId>& indexes = attention_.dag[path.load].operands;
      all.insert(all.end(), indexes.begin(), indexes.end());
    }
    return all;
  }

 private:
  ExprId root_of(std::size_t i) const {
    return i < view_.sums.size() ? view_.sums[i] : view_.value;
  }

  const ir::PrologueView& view_;
  ir::Attention attention_;
  std::vector<Path> paths_;
};

class GradientsOfRows {
 public:
  GradientsOfRows(const ir::Attention& attention, const PrologueGradientTensors& tensors)
      : attention_(attention), tensors_(tensors) {
    for (const PrologueGradientTensors::Of& of : tensors.of) onward_.emplace_back(*of.rows.view);
  }

  MadeSteps run() && {
    WarpKernel kernel(kPrologueGradientsKernel);
    bool writes = false;
    for (std::size_t i = 0; i < onward_.size(); ++i) writes |= declare(i, kernel);
    std::int64_t columns = 1;
    for (std::size_t i = 0; i < onward_.size(); ++i) {
      add_rows(i, kernel);
      columns = std::max(columns, onward_[i].view().columns());
    }
    if (writes)
      made_.steps.emplace_back(std::move(kernel).finish(kRowsOfPrologueGradients, columns));
    for (const std::string& name : tensors_.learned) add_learned(name);
    return std::move(made_);
  }

 private:
  const PrologueGradientTensors::Of& of(std::size_t i) const { return tensors_.of[i]; }
  std::string sums_name(std::size_t i) const { return onward_[i].view().tensor + ".row_sums"; }

  // Whether sums of rows are kept for gradients of learned tensors.
  bool keeps_sums(std::size_t i) const {
    return !onward_[i].view().sums.empty() &&
           std::ranges::any_of(tensors_.learned, [&](const std::string& name) {
             return !onward_[i].paths_to(name).empty();
           });
  }
  std::int64_t kept(std::size_t i) const {
    return 2 * static_cast<std::int64_t>(onward_[i].view().sums.size());
  }

  bool declare(std::size_t i, WarpKernel& kernel) {
    const ir::PrologueView& view = onward_[i].view();
    const bool wanted = !of(i).gradient.empty();
    if (wanted) kernel.write(of(i).gradient, view.attention.dtype, "to_" + view.tensor);
    if (keeps_sums(i)) {
      made_.internals.push_back(
          plan::internal_tensor(sums_name(i), DType::f32, {view.rows(), kept(i)}));
      kernel.write(sums_name(i), DType::f32, "kept_" + view.tensor);
    }
    return wanted || keeps_sums(i);
  }

  void add_rows(std::size_t i, WarpKernel& kernel) {
    const OnwardRow& onward = onward_[i];
    const ir::PrologueView& view = onward.view();
    const bool wanted = !of(i).gradient.empty();
    if (!wanted && !keeps_sums(i)) return;
    kernel.read(view.tensor, view.attention.dtype, "from_" + view.tensor);
    kernel.read(of(i).made, view.attention.dtype, "made_" + view.tensor);
    kernel.read(inputs_of(onward.attention(), onward.locals()), own_names(view));
    std::string body = load_row(of(i).rows);
    body += "    float *dy = rows[warp][1], *dx = rows[warp][2];\n";
    body += loop_text(
        view.columns(),
        fmt::format("      dy[column] = (float)({});\n      dx[column] = 0;\n",
                    real_text(view.attention.dtype, fmt::format("made_{}[number * {} + column]",
                                                                view.tensor, view.columns()))));
    body += "    __syncwarp();\n" + sums_text(onward.attention(), view) + onward.sums_text();
    if (keeps_sums(i)) {
      for (std::size_t n = 0; n < view.sums.size(); ++n) {
        body += fmt::format(
            "    if (lane == 0) kept_{0}[number * {1} + {2}] = sum{3}, kept_{0}[number * {1} + "
            "{4}] = "
            "dsum{3};\n",
            view.tensor, kept(i), 2 * n, n, 2 * n + 1);
      }
    }
    if (wanted) {
      const std::string value = element_text(view.attention.dtype, "dx[column]");
      body += onward.elements_text() +
              loop_text(view.columns(), fmt::format("      to_{}[{}] = {};\n", view.tensor,
                                                    offset_text(of(i).strides, "column"), value));
    }
    kernel.add_rows(view.rows(), body);
  }

  void add_learned(const std::string& name) {
    std::vector<PartsWalk> walks;
    for (std::size_t i = 0; i < onward_.size(); ++i) {
      for (const OnwardRow::Path& path : onward_[i].paths_to(name))
        walks.push_back(walk_of(i, path));
    }
    MadeSteps parts = summed_parts(attention_, *attention_.find_tensor(name), walks,
                                   tensors_.rest(name), ".of_rows");
    std::ranges::move(parts.internals, std::back_inserter(made_.internals));
    std::ranges::move(parts.steps, std::back_inserter(made_.steps));
  }

  PartsWalk walk_of(std::size_t i, const OnwardRow::Path& path) const {
    const OnwardRow& onward = onward_[i];
    const ir::PrologueView& view = onward.view();
    const DType dtype = view.attention.dtype;
    RowWriter writer(onward.attention(), view, Precision::in_double);
    writer.element = [&](const std::string& column) {
      return "(" +
             real_text(dtype, fmt::format("from[{}]", offset_text(of(i).rows.strides, column))) +
             ")";
    };
    writer.sum = [&](std::int64_t n) {
      return fmt::format("(double)kept[local * {} + {}]", kept(i), 2 * n);
    };
    const std::string local = writer.value(path.local), element = writer.element_of(path.load);
    const bool of_value = path.root == view.sums.size();
    const std::string cotangent =
        of_value ? real_text(dtype, fmt::format("made[local * {} + c]", view.columns()))
                 : fmt::format("kept[local * {} + {}]", kept(i), 2 * path.root + 1);
    std::vector<ExprId> read = {path.local};
    const std::vector<ExprId>& indexes = onward.attention().dag[path.load].operands;
    read.insert(read.end(), indexes.begin(), indexes.end());
    PartsWalk walk;
    walk.rows = view.rows();
    walk.columns = view.columns();
    walk.part_at = fmt::format(
        "    const double cotangent = {};\n    if (cotangent == 0) return false;\n{}"
        "    const int column = (int)c;\n{}    element = {};\n    part = cotangent * ({});\n",
        cotangent, place_text(view, "local", 4), writer.statements(4), element, local);
    walk.inputs = inputs_of(onward.attention(), read);
    for (std::size_t at = walk.inputs.operands.size(); at-- > 0;) {
      const auto* tensor = std::get_if<plan::TensorOperand>(&walk.inputs.operands[at]);
      if (tensor == nullptr || !own_names(view).contains(tensor->name)) continue;
      walk.inputs.operands.erase(walk.inputs.operands.begin() + static_cast<std::ptrdiff_t>(at));
      walk.inputs.parameters.erase(walk.inputs.parameters.begin() +
                                   static_cast<std::ptrdiff_t>(at));
    }
    walk.reads = {{view.tensor, dtype, "from"}};
    if (of_value) walk.reads.push_back({of(i).made, dtype, "made"});
    if (keeps_sums(i)) walk.reads.push_back({sums_name(i), DType::f32, "kept"});
    walk.source = ir::to_source(onward.attention(), path.load);
    return walk;
  }

  const ir::Attention& attention_;
  const PrologueGradientTensors& tensors_;
  std::vector<OnwardRow> onward_;
  MadeSteps made_;
};

}  // namespace

MadeSteps prologue_gradients(const ir::Attention& attention,
                             const PrologueGradientTensors& tensors) {
  return GradientsOfRows(attention, tensors).run();
}

}  // namespace attn::codegen
