#include "compiler/engines/native/learned.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>

#include "compiler/codegen/expression_writer.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/real_range.h"
#include "compiler/rewrite/hoist.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

// Finds how much expressions change from a score to the next one of its diagonal.
class DiagonalSteps {
 public:
  explicit DiagonalSteps(const ir::Dag& dag) : dag_(dag) {}

  // nullopt: nobody knows.
  std::optional<std::int64_t> operator[](ExprId id) {
    const auto found = known_.find(id);
    if (found != known_.end()) return found->second;
    return known_[id] = step_of(dag_[id]);
  }

 private:
  std::optional<std::int64_t> step_of(const Node& node) {
    if (node.is(Op::row_) || node.is(Op::column_)) return 1;
    if (node.is(Op::score_)) return std::nullopt;
    std::vector<std::optional<std::int64_t>> steps;
    for (const ExprId operand : node.operands) steps.push_back((*this)[operand]);
    if (std::ranges::all_of(steps, [](const auto& step) { return step == 0; })) return 0;
    const auto known = [](const auto& step) { return step.has_value(); };
    if (!std::ranges::all_of(steps, known)) return std::nullopt;
    const bool compares = ir::info(node.op).rule == ir::Rule::comparison;
    if (compares) return steps[0] == steps[1] ? std::optional(0) : std::nullopt;
    if (node.is(Op::min_) || node.is(Op::max_))
      return steps[0] == steps[1] ? steps[0] : std::nullopt;
    if (node.is(Op::select_))
      return steps[0] == 0 && steps[1] == steps[2] ? steps[1] : std::nullopt;
    if (node.is(Op::add_)) return *steps[0] + *steps[1];
    if (node.is(Op::sub_)) return *steps[0] - *steps[1];
    if (node.is(Op::neg_)) return -*steps[0];
    if (node.is(Op::to_real_)) return steps[0];
    return std::nullopt;
  }

  const ir::Dag& dag_;
  std::map<ExprId, std::optional<std::int64_t>> known_;
};

class Reaches {
 public:
  explicit Reaches(const gradient::Derivatives& derivatives)
      : attention_(derivatives.attention),
        dag_(attention_.dag),
        dependence_(dag_),
        steps_(dag_),
        slope_(constant_slope(derivatives)) {}

  std::vector<LearnedPart> parts_of(const gradient::TensorGradient& tensor) {
    std::vector<LearnedPart> parts;
    for (const gradient::Gather& gather : tensor.score) {
      LearnedPart part{gather,
                       {gather.load},
                       {gather.local},
                       reach_of(gather.load),
                       !slope_ || reads_score(gather.local)};
      part.finite = !part.held && masks::is_finite(attention_, gather.local);
      part.is_long = !part.held && operations_on(gather.local) >= kLong;
      const bool constant = !part.held && dag_[gather.local].is(Op::const_real_);
      if (tensor.score.size() == 1) set_reach_of_each(part, constant);
      if (constant) part.bits = bits_of_sum(part);
      parts.push_back(part);
    }
    return parts;
  }

 private:
  static constexpr double kLong = 24;  // operations of a local derivative

  double operations_on(ExprId root) {
    const ExprId roots[] = {root};
    double operations = 0;
    for (const ExprId id : ir::reachable(dag_, roots)) {
      if (dependence_[id].row || dependence_[id].column)
        operations += rewrite::cost_for_each_score(dag_[id]);
    }
    return operations;
  }

  bool reads_score(ExprId root) const {
    const ExprId roots[] = {root};
    return std::ranges::any_of(ir::reachable(dag_, roots),
                               [this](ExprId id) { return dag_[id].is(Op::score_); });
  }

  Reach reach_of(ExprId load) {
    masks::Axes axes;
    bool along = true;  // a diagonal
    for (const ExprId index : dag_[load].operands) {
      axes = axes | dependence_[index];
      along = along && steps_[index] == 0;
    }
    if (!axes.row) return axes.column ? Reach::column : Reach::heads;
    if (!axes.column) return Reach::row;
    return along ? Reach::diagonal : Reach::unknown;
  }

  bool has(ExprId load, Op op) const { return stride_of(load, op) > 0; }
  // The distance of elements whose plain index by `op` differs by 1, or 0.
  std::int64_t stride_of(ExprId load, Op op) const {
    const std::vector<ExprId>& indices = dag_[load].operands;
    const ir::CapturedTensor& tensor = *attention_.find_tensor(dag_.symbol_of(load));
    std::int64_t stride = 1;
    for (std::size_t axis = indices.size(); axis-- > 0;) {
      if (dag_[indices[axis]].is(op)) return stride;
      stride *= *ir::fold_integer(dag_, tensor.extents[axis]);
    }
    return 0;
  }

  // If each score of a head reads an element of its own. Shared ones have a bound where the local
  // derivative is a constant.
  void set_reach_of_each(LearnedPart& part, bool constant) const {
    const ir::Dims& dims = attention_.dims;
    const ExprId load = part.gather.load;
    if (!has(load, Op::row_) || !has(load, Op::column_)) return;
    if (!codegen::unproven_indices(attention_, load).empty()) return;
    const bool own = (has(load, Op::batch_) || dims[Dim::B] == 1) &&
                     (has(load, Op::head_) || dims[Dim::Hq] == 1);
    if (!own && !constant) return;
    part.reach = own ? Reach::own : Reach::shared;
    part.is_long = false;  // it is read once
    part.row = stride_of(load, Op::row_);
    part.column = stride_of(load, Op::column_);
  }

  // A diagonal has a score in each row at most, a shared element one in each head. Of both, dS' is
  // below twice a product of a row of dO and one of V, whose kept columns dropout scales. (Where
  // dlse is added, Largest counts that in the product.) A row of o that was rounded to 8 bits, as
  // its weights were, may be longer than those of v.
  int bits_of_sum(const LearnedPart& part) const {
    const ir::Dims& dims = attention_.dims;
    const auto& dropout = attention_.dropout;
    const double kept = dropout ? 1 / (1 - dropout->exact_probability()) : 1;
    const double local = std::max(1.0, std::abs(dag_.real_of(part.gather.local)));
    const auto scores =
        static_cast<double>(part.reach == Reach::shared ? dims[Dim::B] * dims[Dim::Hq]
                                                        : std::min(dims[Dim::Sq], dims[Dim::Skv]));
    const double terms = attention_.quantize ? 4 : 2;
    return static_cast<int>(std::ceil(std::log2(terms * kept * scores * local)));
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  masks::Dependence dependence_;
  DiagonalSteps steps_;
  const std::optional<double> slope_;
};

bool is_of_heads(const LearnedPart& part) { return part.reach == Reach::heads; }

// Joins parts that are alike into one of several turns. A diagonal has sums of its own, which would
// be as many as turns.
class Turns {
 public:
  explicit Turns(const ir::Dag& dag) : shapes_(dag, [](ExprId) { return false; }) {}

  std::vector<LearnedPart> taken(const std::vector<LearnedPart>& parts) {
    std::map<Key, std::vector<const LearnedPart*>> alike;
    for (const LearnedPart& part : parts) alike[key_of(part)].push_back(&part);
    std::vector<LearnedPart> all;
    for (const LearnedPart& part : parts) {
      const std::vector<const LearnedPart*>& same = alike[key_of(part)];
      if (part.held || same.size() < codegen::kFewestTurns)
        all.push_back(part);
      else if (same.front() == &part)
        all.push_back(joined(same));
    }
    return all;
  }

 private:
  using Key = std::tuple<Reach, bool, bool, std::size_t, std::size_t>;

  Key key_of(const LearnedPart& part) {
    return {part.reach, part.held, part.finite, shapes_.shape_of(part.gather.load),
            shapes_.shape_of(part.gather.local)};
  }

  static LearnedPart joined(const std::vector<const LearnedPart*>& parts) {
    LearnedPart all = *parts.front();
    all.loads.clear(), all.locals.clear();
    for (const LearnedPart* part : parts) {
      all.loads.push_back(part->gather.load);
      all.locals.push_back(part->gather.local);
    }
    all.is_long = true;
    if (all.reach == Reach::diagonal) all.reach = Reach::unknown, all.bits = 0;
    return all;
  }

  codegen::Repetitions shapes_;
};

}  // namespace

std::string_view name_of(Reach reach) {
  switch (reach) {
    case Reach::heads: return "heads";
    case Reach::row: return "row";
    case Reach::column: return "column";
    case Reach::diagonal: return "diagonal";
    case Reach::unknown: return "unknown";
    case Reach::shared: return "shared";
    case Reach::own: return "own";
  }
  return {};
}

double operations_of(Reach reach) {
  switch (reach) {
    case Reach::heads: return 20;
    case Reach::column: return 20;
    case Reach::row: return 80;
    case Reach::diagonal: return 55;
    case Reach::own: return 10;
    case Reach::shared: return 300;
    case Reach::unknown: return 800;
  }
  return 0;
}

std::optional<double> constant_slope(const gradient::Derivatives& derivatives) {
  const ir::Dag& dag = derivatives.attention.dag;
  if (!dag[derivatives.score].is(Op::const_real_)) return std::nullopt;
  const double slope = dag.real_of(derivatives.score);
  return slope == 0 ? std::nullopt : std::optional(slope);
}

std::vector<LearnedPart> learned_parts(const gradient::Derivatives& derivatives) {
  Reaches reaches(derivatives);
  Turns turns(derivatives.attention.dag);
  std::vector<LearnedPart> all;
  for (const gradient::TensorGradient& tensor : derivatives.tensors) {
    std::vector<LearnedPart> parts = reaches.parts_of(tensor);
    // Scores of a head read the same element, and so do those of a column.
    if (!std::ranges::all_of(parts, is_of_heads)) {
      for (LearnedPart& part : parts) part.reach = is_of_heads(part) ? Reach::column : part.reach;
    }
    std::ranges::move(turns.taken(parts), std::back_inserter(all));
  }
  return all;
}

std::int64_t elements_of(const ir::Attention& attention, const std::string& tensor) {
  std::int64_t elements = 1;
  for (const ir::ExprId extent : attention.find_tensor(tensor)->extents) {
    elements *= *ir::fold_integer(attention.dag, extent);
  }
  return elements;
}

}  // namespace attn::engines::native
