#include "compiler/reference/row_softmax.h"

#include <algorithm>
#include <cmath>

#include "compiler/reference/gathered.h"

namespace attn::reference {
namespace {

using ir::Dim;

std::vector<ir::ExprId> roots_of_rows(const ir::Attention& attention) {
  std::vector<ir::ExprId> roots = attention.masks;
  roots.push_back(attention.score);
  if (attention.sink) roots.push_back(*attention.sink);
  if (const auto& dropout = attention.dropout; dropout && dropout->keep) {
    roots.push_back(*dropout->keep);
  } else if (dropout && dropout->origin) {
    roots.insert(roots.end(),
                 {dropout->origin->head, dropout->origin->row, dropout->origin->column});
  }
  return roots;
}

}  // namespace

RowSoftmax::RowSoftmax(const Problem& problem)
    : problem_(problem),
      evaluator_(problem.attention, problem.bindings, roots_of_rows(problem.attention)) {
  if (const auto& quotient = problem.attention.quotient) {
    const ir::ExprId roots[] = {quotient->f, quotient->g};
    parts_.emplace(problem.attention, problem.bindings, roots);
  }
  if (problem.attention.is_random())
    random_.emplace(problem.param("seed"), problem.param("offset"));
}

Status RowSoftmax::run(std::int64_t index) {
  place_ = problem_.place(index);
  keys_ = listed_keys(problem_.attention, problem_.bindings, place_.batch, place_.row);
  place_.keys = keys_;
  weights_.clear();
  sum_exp_ = sum_exp_with_sink_ = 0;
  max_ = max_with_sink_ = lse_ = lse_without_sink_ = kHidden;
  if (is_past_end()) return {};  // padding sees nothing
  products();
  // A sink has a value even without keys.
  constexpr double kNoScore[] = {0};
  evaluator_.run(place_, scores_.empty() ? std::span<const double>(kNoScore) : scores_);
  ATTN_RETURN_IF_ERROR(hide());
  if (problem_.attention.quotient) return weigh_quotient();
  return problem_.attention.is_pointwise() ? weigh_each() : weigh();
}

// The length of the batch if lengths are given, else the whole dimension.
std::int64_t RowSoftmax::length(std::string_view name, Dim dim) const {
  if (!problem_.attention.find_tensor(name)) return problem_.size(dim);
  const auto batch = static_cast<std::size_t>(place_.batch);
  return static_cast<std::int64_t>(problem_.tensor(name).values[batch]);
}

void RowSoftmax::products() {
  const double* q = row_of(problem_.tensor("q"), place_.batch, place_.head, place_.row);
  const bool gathers = problem_.attention.gather.has_value();
  scores_.assign(gathers ? keys_.size() : static_cast<std::size_t>(problem_.size(Dim::Skv)), 0.0);
  for (std::size_t column = 0; column < scores_.size(); ++column) {
    if (key(column) < 0) continue;  // no key
    const double* k = row_of(problem_.tensor("k"), place_.batch, kv_head(), key(column));
    scores_[column] = problem_.of_stored * dot(q, k, problem_.size(Dim::Dqk));
  }
}

Status RowSoftmax::hide() {
  const std::int64_t visible = length(ir::kLengthsKv, Dim::Skv);
  for (std::size_t column = 0; column < scores_.size(); ++column) {
    if (key(column) >= 0 && key(column) < visible) {
      ATTN_ASSIGN(scores_[column], final_score(column));
    } else {
      scores_[column] = kHidden;
    }
  }
  return {};
}

// A score without a value is not an error if a mask hides it, nor is a mask without one if another
// mask hides the score.
Result<double> RowSoftmax::final_score(std::size_t column) const {
  std::optional<ir::ExprId> fault;
  for (ir::ExprId mask : problem_.attention.masks) {
    const Cell& cell = evaluator_.cells(mask)[column];
    if (!cell.fault && cell.value == 0) return kHidden;
    if (!fault) fault = cell.fault;
  }
  const Cell& score = evaluator_.cells(problem_.attention.score)[column];
  if (!fault) fault = score.fault;
  if (fault) return evaluator_.describe(*fault, column);
  return score.value;
}

Status RowSoftmax::weigh() {
  ATTN_ASSIGN(const double sink, sink_of_row());
  max_ = largest_score();
  lse_ = max_with_sink_ = sink;
  sum_exp_with_sink_ = sink == kHidden ? 0 : 1;
  if (max_ == kHidden) return {};
  const double largest = std::isnan(max_) ? max_ : std::max(max_, sink);
  weights_.assign(scores_.size(), 0.0);
  kept_.assign(scores_.size(), 1.0);
  sum_ = 0;
  for (std::size_t column = 0; column < scores_.size(); ++column) {
    if (!is_visible(column)) continue;
    weights_[column] = std::exp(scores_[column] - largest);
    sum_ += weights_[column];
    sum_exp_ += std::exp(scores_[column] - max_);
    ATTN_ASSIGN(kept_[column], kept_part(column));
  }
  sink_weight_ = sink == kHidden ? 0 : std::exp(sink - largest);
  sum_ += sink_weight_;
  max_with_sink_ = largest;
  sum_exp_with_sink_ = sum_;
  lse_ = largest + std::log(sum_);
  lse_without_sink_ = max_ + std::log(sum_exp_);
  return {};
}

Status RowSoftmax::weigh_each() {
  if (largest_score() == kHidden) return {};
  weights_.assign(scores_.size(), 0.0);
  kept_.assign(scores_.size(), 1.0);
  sum_ = 1;
  for (std::size_t column = 0; column < scores_.size(); ++column) {
    if (!is_visible(column)) continue;
    weights_[column] =
        problem_.attention.is_linear() ? scores_[column] : 1 / (1 + std::exp(-scores_[column]));
    ATTN_ASSIGN(kept_[column], kept_part(column));
  }
  return {};
}

Result<double> RowSoftmax::part(ir::ExprId id, std::size_t column) const {
  const Cell& cell = parts_->cells(id)[column];
  if (cell.fault) return parts_->describe(*cell.fault, column);
  return cell.value;
}

Status RowSoftmax::weigh_quotient() {
  const ir::Quotient& quotient = *problem_.attention.quotient;
  max_ = largest_score();
  if (max_ == kHidden) return {};
  const double least = ir::reads_unit(problem_.attention) ? 0 : kHidden;
  const double m = !quotient.exponential ? 0 : std::isnan(max_) ? max_ : std::max(max_, least);
  terms_ = scores_;
  if (quotient.exponential) {
    for (double& term : terms_) term = std::exp(term - m);
  }
  parts_->run(place_, terms_, std::exp(-m));
  weights_.assign(scores_.size(), 0.0);
  kept_.assign(scores_.size(), 1.0);
  sum_ = 0;
  for (std::size_t column = 0; column < scores_.size(); ++column) {
    if (!is_visible(column)) continue;
    ATTN_ASSIGN(weights_[column], part(quotient.f, column));
    ATTN_ASSIGN(const double term_of_sum, part(quotient.g, column));
    sum_ += term_of_sum;
    ATTN_ASSIGN(kept_[column], kept_part(column));
  }
  if (sum_ == 0) {
    weights_.clear();
  } else {
    lse_ = m + std::log(sum_);
  }
  return {};
}

// -inf without a sink, since its exp is 0.
Result<double> RowSoftmax::sink_of_row() const {
  if (!problem_.attention.sink) return kHidden;
  const Cell& cell = evaluator_.cells(*problem_.attention.sink).front();
  if (cell.fault) return evaluator_.describe(*cell.fault, 0);
  return cell.value;
}

Result<double> RowSoftmax::kept_part(std::size_t column) const {
  const auto& dropout = problem_.attention.dropout;
  if (!dropout) return 1.0;
  bool kept = false;
  if (dropout->keep) {
    const Cell& cell = evaluator_.cells(*dropout->keep)[column];
    if (cell.fault) return evaluator_.describe(*cell.fault, column);
    kept = cell.value != 0;
  } else {
    ATTN_ASSIGN(const Weight weight, drawn_weight(column));
    kept = random_->keeps(weight, *dropout);
  }
  return kept ? 1 / (1 - dropout->exact_probability()) : 0;
}

// The weight whose random number is drawn.
Result<Weight> RowSoftmax::drawn_weight(std::size_t column) const {
  const auto index = [](auto value) { return static_cast<std::uint32_t>(value); };
  const auto& origin = problem_.attention.dropout->origin;
  if (!origin)
    return Weight{index(place_.batch), index(place_.head), index(place_.row), index(column)};
  Weight weight{.b = index(place_.batch)};
  for (const auto& [to, id] :
       {std::pair(&weight.h, origin->head), std::pair(&weight.q, origin->row),
        std::pair(&weight.kv, origin->column)}) {
    const Cell& cell = evaluator_.cells(id)[column];
    if (cell.fault) return evaluator_.describe(*cell.fault, column);
    *to = index(cell.value);
  }
  return weight;
}

// NaN if any score is NaN.
double RowSoftmax::largest_score() const {
  double max = kHidden;
  for (double score : scores_) {
    if (std::isnan(score)) return score;
    max = std::max(max, score);
  }
  return max;
}

}  // namespace attn::reference
