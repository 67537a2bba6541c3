#include "compiler/reference/gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "compiler/ir/prologues.h"
#include "compiler/reference/blocks.h"
#include "compiler/reference/branches.h"
#include "compiler/reference/outputs.h"
#include "compiler/reference/prologues.h"
#include "compiler/reference/reverse.h"
#include "compiler/reference/sums.h"
#include "compiler/reference/tasks.h"

namespace attn::reference {
namespace {

using ir::Dim;
using ir::ExprId;

using Sums = GradientSums;

// Adds terms, which are `factor` times `from`, to a sum: as they are, or squared.
using Add = void (*)(double* to, const double* from, double factor, std::int64_t size);

void add_scaled(double* to, const double* from, double factor, std::int64_t size) {
  for (std::int64_t d = 0; d < size; ++d) to[d] += factor * from[d];
}

void add_squares(double* to, const double* from, double factor, std::int64_t size) {
  for (std::int64_t d = 0; d < size; ++d) to[d] += factor * from[d] * factor * from[d];
}

// Destinations of the terms of one key head.
struct Target {
  io::HostTensor &d_q, &d_k, &d_v;
  Sums& learned;
  Add add;
  bool rounds;  // what 8-bit attention rounds
};

// The terms of one key head for learned tensors, which heads may share.
struct HeadSums {
  Sums of, sizes;
  double amax_dp = 0, size_dp = 0;
};

template <typename... Roots>
std::optional<ExprId> score_leaf(const ir::Attention& attention, Roots... of) {
  const ExprId roots[] = {of...};
  for (const ExprId id : ir::reachable(attention.dag, roots)) {
    if (attention.dag[id].is(ir::Op::score_)) return id;
  }
  return std::nullopt;
}

// The products of a row with keys, values and the output's gradient.
class RowProducts {
 public:
  explicit RowProducts(const Problem& problem)
      : problem_(problem),
        q_(problem.tensor("q")),
        k_(problem.tensor("k")),
        v_(problem.tensor("v")),
        row_(problem) {
    if (problem.attention.is_mxfp8()) blocks_.emplace(problem);
  }

 protected:
  bool quantized() const { return problem_.attention.quantize.has_value(); }
  double weight(std::size_t column) const { return row_.weights()[column] / row_.sum() * share_; }

  // Share of the part's keys in the weight of the whole row. A whole row may see nothing where its
  // part does: it is past the lengths.
  double share_of_part(double lse) const {
    if (problem_.attention.is_pointwise()) return 1;
    return lse == kHidden ? 0 : std::exp(row_.lse() - lse);
  }

  // Where the row of a column begins in k or v.
  std::int64_t key_row(const io::HostTensor& tensor, std::size_t column) const {
    return row_offset(tensor, row_.place().batch, row_.kv_head(),
                      static_cast<std::int64_t>(column));
  }

  // Computes the cotangents of the weights, dO V^T where dropout keeps them. Returns the sum of
  // weight times cotangent, which all scores of the row share through softmax.
  double weigh(const double* d_o) {
    d_weights_.assign(row_.weights().size(), 0.0);
    double shared = 0;
    for (std::size_t column = 0; column < d_weights_.size(); ++column) {
      if (!row_.is_visible(column) || row_.kept()[column] == 0) continue;
      const io::HostTensor& v = blocks_ ? problem_.tensor("v_t") : v_;
      const double* value = v.values.data() + key_row(v, column);
      d_weights_[column] = of_d_o_ * problem_.quantizer("descale_v") * row_.kept()[column] *
                           dot(d_o, value, problem_.size(Dim::Dv));
      shared += weight(column) * d_weights_[column];
    }
    return shared;
  }

  // What a cotangent of a weight is measured by: itself. Kernels round the gradient of o before an
  // epilogue, so then the root of the sum of squares of its products counts, too.
  double d_weight_size(std::size_t column, const double* d_o) const {
    if (!problem_.attention.epilogue && !problem_.rounds_d_o) return d_weights_[column];
    double squares = 0;
    const double* value = v_.values.data() + key_row(v_, column);
    for (std::int64_t d = 0; d < problem_.size(Dim::Dv); ++d)
      add_squares(&squares, value + d, d_o[d], 1);
    return std::hypot(d_weights_[column], row_.kept()[column] * std::sqrt(squares));
  }

  void to_value(const Target& to, std::size_t column, const double* d_o) {
    double factor = weight(column) * row_.kept()[column];
    if (blocks_ && to.rounds) {
      factor = narrow_weight(problem_, factor, ir::kWeightScaleOfGradients);
      const io::HostTensor& d_o_t = problem_.tensor("do_t");
      d_o = row_of(d_o_t, row_.place().batch, row_.place().head, row_.place().row);
    } else if (quantized() && to.rounds) {
      factor = problem_.rounded(problem_.attention.dtype, factor * problem_.quantizer("scale_s")) *
               problem_.quantizer("descale_s");
    } else if (quantized() && !blocks_) {
      factor = measured(factor, problem_.attention.dtype, "scale_s");
    }
    to.add(to.d_v.values.data() + key_row(to.d_v, column), d_o, factor * of_d_o_,
           problem_.size(Dim::Dv));
  }

  void to_product(const Target& to, std::size_t column, double d_score) {
    const RowPlace& place = row_.place();
    const std::int64_t of_q = row_offset(to.d_q, place.batch, place.head, place.row);
    const std::int64_t of_k = key_row(to.d_k, column), depth = problem_.size(Dim::Dqk);
    double factor = problem_.scale * d_score;
    if (blocks_ && to.rounds) return blocks_->add(column, factor);
    if (quantized() && to.rounds)
      factor = rounded_slope(factor);
    else if (quantized() && !blocks_)
      factor = size_of_slope(factor);
    to.add(to.d_q.values.data() + of_q, k_.values.data() + of_k,
           factor * problem_.quantizer("descale_k"), depth);
    to.add(to.d_k.values.data() + of_k, q_.values.data() + of_q,
           factor * problem_.quantizer("descale_q"), depth);
  }

  // What a weight, or the gradient of a product, is measured by: below the smallest normal number
  // of its type, rounding makes errors as of that, or of all of it.
  double measured(double factor, DType dtype, std::string_view scale) const {
    const double least = dtype == DType::e4m3 ? 0x1p-6 : 0x1p-14;
    const double unit = dtype == DType::e4m3 ? 0x1p-4 : 0x1p-3;
    if (problem_.unrounded) return factor;
    const double size = std::abs(factor);
    return std::max(size, std::min(size / unit, least / problem_.quantizer(scale)));
  }

  // The gradient of a product of q and k as kernels round it.
  double rounded_slope(double slope) {
    head_->amax_dp = std::max(head_->amax_dp, std::abs(slope));
    const double scaled = slope * problem_.quantizer("scale_dp");
    return problem_.rounded(problem_.attention.dtype_of("do"), scaled) *
           problem_.quantizer("descale_dp");
  }

  double size_of_slope(double size) {
    head_->size_dp = std::max(head_->size_dp, std::abs(size));
    return measured(size, problem_.attention.dtype_of("do"), "scale_dp");
  }

  const Problem& problem_;
  const io::HostTensor &q_, &k_, &v_;
  RowSoftmax row_;
  std::vector<double> d_weights_;
  const double of_d_o_ = problem_.quantizer("descale_do");
  std::optional<BlockSlopes> blocks_;  // with scales of blocks
  HeadSums* head_ = nullptr;           // of the row
  double share_ = 1;                   // of the row
  double d_lse_ = 0;                   // of the row; 0 where its lse is -inf
};

// Runs one row after the other: writes its outputs, and adds its terms to the gradients and, if
// wanted, their squares to the sizes. Rows of different key heads share no element of q, k, v;
// learned tensors, which they may share, have sums for each head.
class RowGradients : private RowProducts {
 public:
  RowGradients(const Problem& problem, const io::HostTensor& d_o, const Options& options,
               Gradients& result)
      : RowProducts(problem),
        d_o_(d_o),
        d_lse_rows_(options.d_lse),
        result_(result),
        score_(problem.attention.dag, row_.evaluator(), problem.attention.score),
        score_leaf_(score_leaf(problem.attention, problem.attention.score)),
        whole_(options.whole) {
    if (problem.attention.epilogue) {
      epilogue_.emplace(problem);
      if (options.sizes) beside_.emplace(problem);
    }
    const auto& sink = problem.attention.sink;
    if (sink) sink_.emplace(problem.attention.dag, row_.evaluator(), *sink);
    if (const auto& quotient = problem.attention.quotient) {
      f_.emplace(problem.attention.dag, row_.parts(), quotient->f);
      g_.emplace(problem.attention.dag, row_.parts(), quotient->g);
      term_ = score_leaf(problem.attention, quotient->f, quotient->g);
    }
  }

  // Runs row `index` of the problem's rows.
  Status run(std::int64_t index, HeadSums& learned) {
    ATTN_RETURN_IF_ERROR(row_.run(index));
    ATTN_RETURN_IF_ERROR(
        write_row(problem_, row_, epilogue_ ? &*epilogue_ : nullptr, index, result_.outputs));
    const double* d_o = cotangent_of_row(index, learned);
    share_ = whole_ ? share_of_part(whole_->lse.values[static_cast<std::size_t>(index)]) : 1;
    d_lse_ = d_lse_of(index);
    if (row_.is_empty()) {
      add_sink_alone(index, learned);
    } else {
      run_row(index, d_o, learned);
    }
    if (blocks_) blocks_->end_row(row_.place(), result_.of);
    return {};
  }

 private:
  // What is given for the row; nothing if it, or the whole row of a part, sees nothing.
  double d_lse_of(std::int64_t index) const {
    if (d_lse_rows_ == nullptr) return 0;
    const auto at = static_cast<std::size_t>(index);
    const double lse = whole_ ? whole_->lse.values[at] : row_.lse();
    return lse == kHidden ? 0 : d_lse_rows_->values[at];
  }

  // A row, or its part, that sees no key may still have the sink: then that is its lse.
  void add_sink_alone(std::int64_t index, HeadSums& learned) {
    if (share_ == 0 || row_.lse() == kHidden) return;
    const double delta = whole_ ? whole_->delta.values[static_cast<std::size_t>(index)] : 0;
    add_sink_term(target(result_.of, learned.of, add_scaled), 1, delta - d_lse_);
    if (result_.sizes.empty()) return;
    add_sink_term(target(result_.sizes, learned.sizes, add_squares), 1, std::hypot(delta, d_lse_));
  }

  // The cotangent of the row before the epilogue, whose learned tensors get their terms.
  const double* cotangent_of_row(std::int64_t index, HeadSums& learned) {
    const double* d_o = d_o_.values.data() + index * problem_.size(Dim::Dv);
    if (!epilogue_ || row_.is_past_end()) return d_o;
    d_inner_.resize(static_cast<std::size_t>(problem_.size(Dim::Dv)));
    for (std::size_t column = 0; column < d_inner_.size(); ++column) {
      epilogue_->reverse(column, d_o[column]);
      d_inner_[column] = epilogue_->cotangent();
      epilogue_->gather(column, [&](const std::string& tensor, std::int64_t element, double term) {
        add_term(learned.of, tensor, element, term, add_scaled);
        add_term(learned.sizes, tensor, element, term, add_squares);
      });
    }
    if (beside_) add_sizes_beside(index, d_o, learned);
    return d_inner_.data();
  }

  // A term depends on o, which is a sum itself: it is measured where o is larger by the root of the
  // sum of squares of its own terms, too.
  void add_sizes_beside(std::int64_t index, const double* d_o, HeadSums& learned) {
    const std::int64_t width = problem_.size(Dim::Dv);
    std::vector<double> squares(static_cast<std::size_t>(width));
    for (std::size_t column = 0; column < row_.weights().size(); ++column) {
      if (!row_.is_visible(column) || row_.kept()[column] == 0) continue;
      add_squares(squares.data(), v_.values.data() + key_row(v_, column),
                  weight(column) * row_.kept()[column], width);
    }
    const double* o = result_.outputs.o_inner.values.data() + index * width;
    o_beside_.assign(o, o + width);
    for (std::size_t d = 0; d < squares.size(); ++d) o_beside_[d] += std::sqrt(squares[d]);
    if (!beside_->run(row_.place(), o_beside_).ok()) return;  // no element is there
    for (std::size_t column = 0; column < squares.size(); ++column) {
      beside_->reverse(column, d_o[column]);
      beside_->gather(column, [&](const std::string& tensor, std::int64_t element, double term) {
        add_term(learned.sizes, tensor, element, term, add_squares);
      });
    }
  }

  static void add_term(Sums& sums, const std::string& tensor, std::int64_t element, double term,
                       Add add) {
    const auto sum = sums.find(tensor);
    if (sum != sums.end()) add(sum->second.values.data() + element, &term, 1, 1);
  }

  void run_row(std::int64_t index, const double* d_o, HeadSums& learned) {
    const std::int64_t of_row = index * problem_.size(Dim::Dv);
    const double shared = weigh(d_o);
    const double delta = quantized() ? stored_delta(d_o, of_row)
                         : whole_ ? whole_->delta.values[static_cast<std::size_t>(index)] - d_lse_
                                  : shared - d_lse_;
    head_ = &learned;
    if (blocks_) blocks_->begin_row();
    if (problem_.attention.is_pointwise()) return add_terms_of_each(d_o, learned);
    if (f_) return add_terms_of_quotient(index, d_o, delta, learned);
    add_terms(target(result_.of, learned.of, add_scaled, true), d_o, delta,
              [&](std::size_t column) { return weight(column) * (d_weights_[column] - delta); });
    if (result_.sizes.empty()) return;
    const double size = std::hypot(delta, d_lse_, products_size(d_o, of_row));
    add_terms(target(result_.sizes, learned.sizes, add_squares), d_o, size,
              [&](std::size_t column) {
                return weight(column) * std::hypot(d_weight_size(column, d_o), size);
              });
  }

  // Each weight depends on its own score alone: there is no delta.
  void add_terms_of_each(const double* d_o, HeadSums& learned) {
    const bool linear = problem_.attention.is_linear();
    const auto d_score = [&](std::size_t column) {
      const double p = weight(column);
      return linear ? d_weights_[column] : p * (d_weights_[column] * (1 - p));
    };
    const auto size = [&](std::size_t column) {
      const double p = weight(column);
      return d_weight_size(column, d_o) * (linear ? 1 : p * (1 - p));
    };
    add_terms(target(result_.of, learned.of, add_scaled), d_o, 0, d_score);
    if (result_.sizes.empty()) return;
    add_terms(target(result_.sizes, learned.sizes, add_squares), d_o, 0, size);
  }

  // Each score changes its own numerator, and the sum that all weights are divided by.
  void add_terms_of_quotient(std::int64_t index, const double* d_o, double delta,
                             HeadSums& learned) {
    add_terms(target(result_.of, learned.of, add_scaled), d_o, 0, [&](std::size_t column) {
      return slope(*f_, column) * d_weights_[column] - slope(*g_, column) * delta;
    });
    if (result_.sizes.empty()) return;
    const double size =
        std::hypot(delta, d_lse_, products_size(d_o, index * problem_.size(Dim::Dv)));
    add_terms(target(result_.sizes, learned.sizes, add_squares), d_o, 0, [&](std::size_t column) {
      return std::hypot(slope(*f_, column) * d_weight_size(column, d_o), slope(*g_, column) * size);
    });
  }

  // The derivative of a part of a quotient by the score, divided by the sum.
  double slope(ReverseMode& part, std::size_t column) {
    if (!term_) return 0;
    part.run(column, row_.slope_of_term(column) / row_.sum() * share_);
    return part.cotangent(*term_);
  }

  static Target target(Sums& sums, Sums& learned, Add add, bool rounds = false) {
    return {sums.find("q")->second,
            sums.find("k")->second,
            sums.find("v")->second,
            learned,
            add,
            rounds};
  }

  // delta as kernels have it: from the stored o.
  double stored_delta(const double* d_o, std::int64_t of_row) const {
    if (blocks_) d_o = problem_.tensor("do_f16").values.data() + of_row;
    const double* y = result_.outputs.o.values.data() + of_row;
    const double scale = problem_.quantizer("scale_o");
    const DType dtype = problem_.attention.dtype_of("o");
    double sum = 0;
    for (std::int64_t d = 0; d < problem_.size(Dim::Dv); ++d)
      sum += d_o[d] * problem_.rounded(dtype, y[d] * scale);
    return sum * problem_.quantizer("descale_do") * problem_.quantizer("descale_o");
  }

  // `d_score`: the cotangent of the score of a column.
  template <typename DScore>
  void add_terms(const Target& to, const double* d_o, double delta, const DScore& d_score) {
    for (std::size_t column = 0; column < row_.weights().size(); ++column) {
      if (!row_.is_visible(column)) continue;
      if (row_.kept()[column] != 0) to_value(to, column, d_o);
      score_.run(column, d_score(column));
      gather(to, score_, column);
      if (score_leaf_) to_product(to, column, score_.cotangent(*score_leaf_));
    }
    add_sink_term(to, row_.sink_weight() / row_.sum(), delta);
  }

  // `weight` is the sink's of the part.
  void add_sink_term(const Target& to, double weight, double delta) {
    if (!sink_) return;
    sink_->run(0, -weight * share_ * delta);
    gather(to, *sink_, 0);
  }

  // The root of the sum of squares of the products whose sum is delta.
  double products_size(const double* d_o, std::int64_t of_row) const {
    const Outputs& outputs = result_.outputs;
    const double* o = (epilogue_ ? outputs.o_inner : outputs.o).values.data() + of_row;
    double squares = 0;
    for (std::int64_t d = 0; d < problem_.size(Dim::Dv); ++d)
      add_squares(&squares, o + d, d_o[d], 1);
    return std::sqrt(squares);
  }

  void gather(const Target& to, const ReverseMode& expression, std::size_t column) {
    for (const ExprId load : expression.loads()) {
      if (!expression.is_reached(load)) continue;
      const auto sum = to.learned.find(problem_.attention.dag.symbol_of(load));
      if (sum == to.learned.end()) continue;
      const std::int64_t element = *row_.evaluator().element(load, column);
      const double cotangent = expression.cotangent(load);
      to.add(sum->second.values.data() + element, &cotangent, 1, 1);
    }
  }

  const io::HostTensor& d_o_;
  const io::HostTensor* d_lse_rows_;
  Gradients& result_;
  ReverseMode score_;
  std::optional<ReverseMode> sink_;
  std::optional<RowEpilogue> epilogue_;
  std::optional<RowEpilogue> beside_;  // with sizes: of o changed by its own size
  std::vector<double> o_beside_;
  std::vector<double> d_inner_;       // of the row, with an epilogue
  std::optional<ReverseMode> f_, g_;  // of a quotient
  std::optional<ExprId> score_leaf_, term_;
  const WholeRows* whole_;
};

bool is_input(std::string_view name) { return name == "q" || name == "k" || name == "v"; }

Status check_names(const ir::Attention& attention, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const ir::CapturedTensor* tensor = attention.find_tensor(name);
    if (is_input(name) || (tensor && tensor->learned)) continue;
    return {ErrorCode::invalid_argument, name + " has no gradient"};
  }
  return {};
}

// Latent caches have none, in any engine.
Status check_has_gradients(const ir::Attention& attention) {
  if (attention.gather) {
    return Error{ErrorCode::unsupported,
                 "an attention over gathered keys has no gradients",
                 {"where rows see few keys, a `mask` says which, and has gradients"}};
  }
  if (attention.values_of_keys) {
    return Error{ErrorCode::unsupported,
                 "an attention whose values are a part of k has no gradients",
                 {"train with k and v of their own: leave out `values`"}};
  }
  return {};
}

Result<io::HostTensor> checked_d_o(const ir::Attention& attention, io::HostTensor d_o,
                                   bool unrounded) {
  const ir::Dims& dims = attention.dims;
  const std::vector<std::int64_t> wanted = {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq],
                                            dims[Dim::Dv]};
  const bool whole = d_o.values.size() == static_cast<std::size_t>(io::element_count(wanted));
  if (d_o.dims != wanted || !whole) {
    return {ErrorCode::binding, fmt::format("do has dims [{}], but the attention expects [{}]",
                                            fmt::join(d_o.dims, ", "), fmt::join(wanted, ", "))};
  }
  if (!unrounded) {
    const DType dtype = attention.dtype_of("do");
    for (double& value : d_o.values) value = round_to(dtype, value);
  }
  return d_o;
}

Status check_d_lse(const ir::Attention& attention, const io::HostTensor* d_lse) {
  if (attention.reads_d_lse != (d_lse != nullptr)) {
    return {ErrorCode::binding,
            d_lse ? "dlse is given, but `lse` is not in the `grad` clause" : "dlse is missing"};
  }
  if (d_lse == nullptr) return {};
  const ir::Dims& dims = attention.dims;
  const std::vector<std::int64_t> wanted = {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq]};
  const bool whole = d_lse->values.size() == static_cast<std::size_t>(io::element_count(wanted));
  if (d_lse->dims == wanted && whole) return {};
  return {ErrorCode::binding, fmt::format("dlse has dims [{}], but the attention expects [{}]",
                                          fmt::join(d_lse->dims, ", "), fmt::join(wanted, ", "))};
}

// Sums for q, k and v, wanted or not, and for the learned tensors among `names`.
Sums make_sums(const Bindings& bindings, const std::vector<std::string>& names, DType dtype) {
  Sums sums;
  for (const auto& [name, tensor] : bindings.tensors) {
    if (is_input(name) || std::ranges::find(names, name) != names.end()) {
      sums[name] = zeros(dtype, tensor.dims);
    }
  }
  return sums;
}

// Zeros of the learned tensors among the sums.
Sums learned_among(const Sums& sums) {
  Sums learned;
  for (const auto& [name, tensor] : sums) {
    if (!is_input(name)) learned[name] = zeros(tensor.dtype, tensor.dims);
  }
  return learned;
}

void add_to(Sums& sums, const Sums& learned) {
  for (const auto& [name, tensor] : learned) {
    std::vector<double>& to = sums.find(name)->second.values;
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += tensor.values[i];
  }
}

// Runs key heads first to first + sums.size() - 1 in parallel, each with its own sums.
Status run_some_heads(const Problem& problem, const io::HostTensor& d_o, const Options& options,
                      std::int64_t first, std::vector<HeadSums>& sums, Gradients& gradients,
                      Advance& advance) {
  const std::int64_t rows = problem.group() * problem.size(Dim::Sq);
  const auto make_worker = [&]() -> Worker {
    auto worker = std::make_shared<RowGradients>(problem, d_o, options, gradients);
    return [first, rows, worker, &sums, &advance](std::int64_t task) -> Status {
      const std::int64_t begin = (first + task) * rows;
      for (std::int64_t index = begin; index < begin + rows; ++index) {
        ATTN_RETURN_IF_ERROR(worker->run(index, sums[static_cast<std::size_t>(task)]));
        advance.row();
      }
      return {};
    };
  };
  return run_tasks(static_cast<std::int64_t>(sums.size()), options.threads, make_worker);
}

// The time of a row with its gradients, of that of the forward alone: 1.3 to 2.6 were measured.
constexpr double kGradientCost = 2;

// Runs heads in parallel. Their terms for learned tensors are added in the order of heads, so that
// no sum depends on the number of threads.
Status run_heads(const Problem& problem, const io::HostTensor& d_o, const Options& options,
                 Gradients& gradients) {
  const std::int64_t heads = problem.size(Dim::B) * problem.size(Dim::Hkv);
  const std::int64_t at_once = heads_at_once(heads, gradients.of);
  const std::int64_t threads = std::min<std::int64_t>(threads_of(options.threads), at_once);
  ATTN_RETURN_IF_ERROR(tell_pace(
      problem, threads, options.sizes ? 2 * kGradientCost : kGradientCost, options.observer));
  Advance advance(problem.rows(), options.observer);
  for (std::int64_t first = 0; first < heads; first += at_once) {
    std::vector<HeadSums> sums(static_cast<std::size_t>(std::min(at_once, heads - first)));
    for (HeadSums& head : sums)
      head = {learned_among(gradients.of), learned_among(gradients.sizes)};
    ATTN_RETURN_IF_ERROR(run_some_heads(problem, d_o, options, first, sums, gradients, advance));
    for (const HeadSums& head : sums) {
      add_to(gradients.of, head.of);
      add_to(gradients.sizes, head.sizes);
      double& amax = gradients.amax.at("amax_dp").values[0];
      amax = std::max(amax, head.amax_dp);
      if (gradients.sizes.empty() || !problem.attention.quantize) continue;
      double& size = gradients.amax_sizes["amax_dp"];
      size = std::max(size, head.size_dp);
    }
  }
  return {};
}

// Scales the gradients of q, k and v, after taking their amax.
void scale_gradients(const Problem& problem, Gradients& result) {
  for (auto& [name, tensor] : result.of) {
    if (!is_input(name)) continue;
    double& amax = result.amax.at("amax_d" + name).values[0];
    const double scale = problem.quantizer("scale_d" + name);
    for (double& value : tensor.values) {
      amax = std::isnan(value) ? value : std::max(amax, std::abs(value));
      value *= scale;
    }
    const auto sizes = result.sizes.find(name);
    if (sizes == result.sizes.end()) continue;
    double& largest = result.amax_sizes["amax_d" + name];
    for (double& size : sizes->second.values) {
      largest = std::max(largest, size);
      size *= scale;
    }
  }
}

void finish(const Problem& problem, const Bindings& bindings, const std::vector<std::string>& names,
            bool unrounded, Gradients& result) {
  for (Sums* sums : {&result.of, &result.sizes}) {
    std::erase_if(*sums, [&](const auto& each) {
      return std::ranges::find(names, each.first) == names.end();
    });
  }
  for (auto& [name, tensor] : result.sizes) {
    for (double& value : tensor.values) value = std::sqrt(value);
  }
  finish_outputs(problem, result.outputs);
  if (problem.attention.quantize) scale_gradients(problem, result);
  if (problem.attention.is_mxfp8()) {
    result.amax.erase("amax_dp");
    result.amax_sizes.erase("amax_dp");
  }
  if (unrounded) return;
  for (auto& [name, tensor] : result.of) {
    const DType dtype = is_input(name) ? problem.attention.dtype_of("d" + name)
                                       : bindings.tensors.find(name)->second.dtype;
    for (double& value : tensor.values) value = round_to(dtype, value);
  }
}

}  // namespace

// A quarter of a gigabyte of sums, or what a single head needs.
std::int64_t heads_at_once(std::int64_t heads, const GradientSums& sums) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // elements, of sums and sizes each
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : sums) {
    if (!is_input(name)) elements += io::element_count(tensor.dims);
  }
  return std::clamp<std::int64_t>(kMost / std::max<std::int64_t>(1, elements), 1, heads);
}

Result<Gradients> gradients(const ir::Attention& attention, const Inputs& inputs,
                            const io::HostTensor& d_o, const std::vector<std::string>& names,
                            const Options& options) {
  ATTN_RETURN_IF_ERROR(check_has_gradients(attention));
  ATTN_RETURN_IF_ERROR(check_names(attention, names));
  if (!attention.branches.empty())
    return gradients_of_branches(attention, inputs, d_o, names, options);
  if (ir::has_prologue(attention))
    return gradients_through_prologues(attention, inputs, d_o, names, options);
  if (!attention.sums.empty())
    return gradients_through_sums(attention, inputs, d_o, names, options);
  if (attention.cache) {
    return {
        ErrorCode::unsupported,
        "keys and values of 8 bits beside queries of 16 have no gradients: a cache is not trained"};
  }
  if (attention.quantize && attention.gradients.empty()) {
    return {ErrorCode::unsupported,
            "8-bit attention has gradients only with a `grad` clause, which "
            "declares their scales"};
  }
  ATTN_RETURN_IF_ERROR(check_d_lse(attention, options.d_lse));
  ATTN_ASSIGN(const Bindings bindings, bind(attention, inputs, options.unrounded));
  ATTN_ASSIGN(Problem problem, make_problem(attention, bindings, options.unrounded));
  problem.rounds_d_o = options.rounds_d_o;
  ATTN_ASSIGN(io::HostTensor cotangent, checked_d_o(attention, d_o, options.unrounded));
  if (attention.is_mxfp8()) apply_block_scales(bindings.tensors.at("descale_do"), false, cotangent);
  Gradients result{make_outputs(attention, options.unrounded),
                   make_sums(bindings, names, options.unrounded ? DType::f64 : DType::f32),
                   {},
                   {}};
  for (const char* name : {"amax_dp", "amax_dq", "amax_dk", "amax_dv"}) {
    result.amax[name] = zeros(options.unrounded ? DType::f64 : DType::f32, {1});
  }
  if (options.sizes) result.sizes = make_sums(bindings, names, DType::f64);
  ATTN_RETURN_IF_ERROR(run_heads(problem, cotangent, options, result));
  finish(problem, bindings, names, options.unrounded, result);
  return result;
}

}  // namespace attn::reference
