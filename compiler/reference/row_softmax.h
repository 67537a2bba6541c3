// One row from its scores to its weights, the first part of the forward and of its gradients.
// Internal to compiler/reference.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "compiler/reference/philox.h"
#include "compiler/reference/problem.h"

namespace attn::reference {

inline constexpr double kHidden = -std::numeric_limits<double>::infinity();

// Not thread-safe: use one per thread. The problem must outlive it.
class RowSoftmax {
 public:
  explicit RowSoftmax(const Problem& problem);

  // Computes row `index` of the problem's rows. Errors: binding if a value that the row depends on
  // does not exist.
  Status run(std::int64_t index);

  // Results of the last run. For a row that sees nothing, weights() is empty.
  bool is_empty() const { return weights_.empty(); }
  // Whether it is a row past the length, which is no row of the attention.
  bool is_past_end() const { return place_.row >= length(ir::kLengthsQ, ir::Dim::Sq); }
  const RowPlace& place() const { return place_; }
  // The position of the key that a column is: with a gather, that which is listed.
  std::int64_t key(std::size_t column) const { return place_.column_of(column); }
  std::int64_t kv_head() const { return place_.head / problem_.group(); }
  bool is_visible(std::size_t column) const { return scores_[column] != kHidden; }
  // Weights before they are divided by sum(), which is 1 without softmax.
  const std::vector<double>& weights() const { return weights_; }
  // The factor that dropout gives a weight: 0 or 1 / (1 - exact_probability()); 1 without dropout.
  const std::vector<double>& kept() const { return kept_; }
  double sum() const { return sum_; }                  // of the weights and the sink's
  double sink_weight() const { return sink_weight_; }  // 0 without a sink
  double max() const { return max_; }
  double sum_exp() const { return sum_exp_; }
  double max_with_sink() const { return max_with_sink_; }
  double sum_exp_with_sink() const { return sum_exp_with_sink_; }
  double lse() const { return lse_; }
  double lse_without_sink() const { return lse_without_sink_; }
  const RowEvaluator& evaluator() const { return evaluator_; }
  // Parts of the weights of a quotient, and the derivative of a term by its score.
  const RowEvaluator& parts() const { return *parts_; }
  double slope_of_term(std::size_t column) const {
    return problem_.attention.quotient->exponential ? terms_[column] : 1;
  }

 private:
  std::int64_t length(std::string_view name, ir::Dim dim) const;
  void products();
  Status hide();
  Result<double> final_score(std::size_t column) const;
  Status weigh();
  Status weigh_each();
  Status weigh_quotient();
  Result<double> part(ir::ExprId id, std::size_t column) const;  // of a quotient
  Result<double> sink_of_row() const;
  Result<double> kept_part(std::size_t column) const;
  Result<Weight> drawn_weight(std::size_t column) const;
  double largest_score() const;

  const Problem& problem_;
  RowEvaluator evaluator_;
  std::optional<Random> random_;  // of random dropout
  RowPlace place_;
  std::vector<std::int64_t> keys_;  // of a gather
  std::vector<double> scores_;
  std::optional<RowEvaluator> parts_;  // of a quotient, like the next
  std::vector<double> terms_;
  std::vector<double> weights_;
  std::vector<double> kept_;
  double sum_ = 0;
  double sink_weight_ = 0;
  double max_ = kHidden;
  double sum_exp_ = 0;
  double max_with_sink_ = kHidden;
  double sum_exp_with_sink_ = 0;
  double lse_ = kHidden;
  double lse_without_sink_ = kHidden;
};

}  // namespace attn::reference
