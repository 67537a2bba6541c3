#include "runtime/reference/evaluate.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "runtime/reference/bindings.h"
#include "runtime/reference/philox.h"
#include "runtime/reference/row_evaluator.h"

namespace attn::reference {
namespace {

using ir::Dim;

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// Four sums, because one would wait for each addition.
double dot(const double* x, const double* y, std::int64_t size) {
  double sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (std::int64_t lane = 0; lane < 4; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  }
  for (; i < size; ++i) sums[0] += x[i] * y[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Where a row of a [B, H, S, D] tensor begins.
const double* row_of(const io::HostTensor& tensor, std::int64_t b, std::int64_t h, std::int64_t s) {
  const auto& dims = tensor.dims;
  return tensor.values.data() + ((b * dims[1] + h) * dims[2] + s) * dims[3];
}

// What all rows share.
struct Problem {
  const ir::Attention& attention;
  const Bindings& bindings;
  double scale;
  Outputs& outputs;  // each row writes its own elements

  std::int64_t size(Dim dim) const { return attention.dims[dim]; }
  std::uint64_t param(std::string_view name) const {
    return static_cast<std::uint64_t>(bindings.params.find(name)->second);
  }
  void set_stats(std::int64_t row, double max, double sum_exp, double lse) const {
    const auto at = static_cast<std::size_t>(row);
    outputs.max.values[at] = max;
    outputs.sum_exp.values[at] = sum_exp;
    outputs.lse.values[at] = lse;
  }
  const io::HostTensor& tensor(std::string_view name) const {
    return bindings.tensors.find(name)->second;
  }
  RowPlace place(std::int64_t index) const {
    const std::int64_t rows = size(Dim::Sq), heads = size(Dim::Hq);
    return {index / rows / heads, index / rows % heads, index % rows};
  }
};

std::vector<ir::ExprId> roots_of_rows(const ir::Attention& attention) {
  std::vector<ir::ExprId> roots = attention.masks;
  roots.push_back(attention.score);
  if (attention.sink) roots.push_back(*attention.sink);
  if (attention.dropout && attention.dropout->keep) roots.push_back(*attention.dropout->keep);
  return roots;
}

class RowWorker {
 public:
  explicit RowWorker(const Problem& problem)
      : problem_(problem),
        evaluator_(problem.attention, problem.bindings, roots_of_rows(problem.attention)) {}

  // Computes row `index` of the B * Hq * Sq rows.
  Status run(std::int64_t index) {
    const RowPlace place = problem_.place(index);
    if (place.row >= length(ir::kLengthsQ, place, Dim::Sq)) {  // padding sees nothing at all
      problem_.set_stats(index, kHidden, 0, kHidden);
      return {};
    }
    const std::int64_t group = problem_.size(Dim::Hq) / problem_.size(Dim::Hkv);
    const std::int64_t kv_head = place.head / group;
    products(place, kv_head);
    // A sink has a value without keys too.
    constexpr double kNoScore[] = {0};
    evaluator_.run(place, scores_.empty() ? std::span<const double>(kNoScore) : scores_);
    const auto visible = static_cast<std::size_t>(length(ir::kLengthsKv, place, Dim::Skv));
    for (std::size_t column = 0; column < scores_.size(); ++column) {
      if (column < visible) {
        ATTN_ASSIGN(scores_[column], final_score(column));
      } else {
        scores_[column] = kHidden;
      }
    }
    return write(index, place, kv_head);
  }

 private:
  // Of the batch, where lengths are given; the whole dimension elsewhere.
  std::int64_t length(std::string_view name, const RowPlace& place, Dim dim) const {
    if (!problem_.attention.find_tensor(name)) return problem_.size(dim);
    const auto batch = static_cast<std::size_t>(place.batch);
    return static_cast<std::int64_t>(problem_.tensor(name).values[batch]);
  }

  void products(const RowPlace& place, std::int64_t kv_head) {
    const double* q = row_of(problem_.tensor("q"), place.batch, place.head, place.row);
    scores_.resize(static_cast<std::size_t>(problem_.size(Dim::Skv)));
    for (std::size_t column = 0; column < scores_.size(); ++column) {
      const double* k =
          row_of(problem_.tensor("k"), place.batch, kv_head, static_cast<std::int64_t>(column));
      scores_[column] = problem_.scale * dot(q, k, problem_.size(Dim::Dqk));
    }
  }

  // A score that a mask hides is not missed when it has no value, and neither is one mask when
  // another hides.
  Result<double> final_score(std::size_t column) const {
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

  Status write(std::int64_t index, const RowPlace& place, std::int64_t kv_head) {
    ATTN_ASSIGN(const double sink, sink_of_row());
    const std::int64_t width = problem_.size(Dim::Dv);
    double* o = problem_.outputs.o.values.data() + index * width;
    const double max = largest_score();
    problem_.set_stats(index, max, 0, sink);
    if (max == kHidden) return {};  // nothing visible: o stays 0
    const double largest = std::isnan(max) ? max : std::max(max, sink);
    double sum = 0, sum_from_max = 0;
    for (std::size_t column = 0; column < scores_.size(); ++column) {
      if (scores_[column] == kHidden) continue;
      const double weight = std::exp(scores_[column] - largest);
      sum += weight;
      sum_from_max += std::exp(scores_[column] - max);
      ATTN_ASSIGN(const double kept, kept_part(index, column));
      if (kept == 0) continue;
      const double* v =
          row_of(problem_.tensor("v"), place.batch, kv_head, static_cast<std::int64_t>(column));
      for (std::int64_t d = 0; d < width; ++d) o[d] += kept * weight * v[d];
    }
    if (sink != kHidden) sum += std::exp(sink - largest);
    for (std::int64_t d = 0; d < width; ++d) o[d] /= sum;
    problem_.set_stats(index, max, sum_from_max, largest + std::log(sum));
    return {};
  }

  // -inf without a sink: exp of it is 0.
  Result<double> sink_of_row() const {
    if (!problem_.attention.sink) return kHidden;
    const Cell& cell = evaluator_.cells(*problem_.attention.sink).front();
    if (cell.fault) return evaluator_.describe(*cell.fault, 0);
    return cell.value;
  }

  // What dropout makes of a weight: 0, or 1 / (1 - probability).
  Result<double> kept_part(std::int64_t row, std::size_t column) const {
    const auto& dropout = problem_.attention.dropout;
    if (!dropout) return 1.0;
    bool kept = false;
    if (dropout->keep) {
      const Cell& cell = evaluator_.cells(*dropout->keep)[column];
      if (cell.fault) return evaluator_.describe(*cell.fault, column);
      kept = cell.value != 0;
    } else {
      const std::uint64_t index = static_cast<std::uint64_t>(row) * scores_.size() + column;
      kept = is_kept(problem_.param("seed"), problem_.param("offset"), index, dropout->probability);
    }
    return kept ? 1 / (1 - dropout->probability) : 0;
  }

  // NaN when one is.
  double largest_score() const {
    double max = kHidden;
    for (double score : scores_) {
      if (std::isnan(score)) return score;
      max = std::max(max, score);
    }
    return max;
  }

  const Problem& problem_;
  RowEvaluator evaluator_;
  std::vector<double> scores_;
};

// Hands out rows; keeps the error of the first row that has one, whatever the number of threads,
// and what was thrown (std::bad_alloc), which must not end another thread's function.
class RowQueue {
 public:
  explicit RowQueue(std::int64_t count) : count_(count) {}

  void work(const Problem& problem) {
    try {
      run_rows(problem);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      thrown_ = std::current_exception();
      failed_row_ = -1;
    }
  }

  // After all have worked. Throws what was thrown.
  Status status() const {
    if (thrown_) std::rethrow_exception(thrown_);
    return error_ ? Status(*error_) : Status();
  }

 private:
  void run_rows(const Problem& problem) {
    RowWorker worker(problem);
    for (std::int64_t row = next_++; row < count_ && row < failed_row_; row = next_++) {
      const Status status = worker.run(row);
      if (!status.ok()) fail(row, status.error());
    }
  }

  void fail(std::int64_t row, const Error& error) {
    const std::lock_guard lock(mutex_);
    if (row >= failed_row_) return;
    failed_row_ = row;
    error_ = error;
  }

  const std::int64_t count_;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<std::int64_t> failed_row_ = std::numeric_limits<std::int64_t>::max();
  std::mutex mutex_;
  std::optional<Error> error_;
  std::exception_ptr thrown_;
};

Status run_rows(const Problem& problem, int threads) {
  const std::int64_t rows = problem.size(Dim::B) * problem.size(Dim::Hq) * problem.size(Dim::Sq);
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  RowQueue queue(rows);
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, rows); ++i) {
    try {
      others.emplace_back([&] { queue.work(problem); });
    } catch (const std::system_error&) {
      break;  // no more threads: those that there are do it
    }
  }
  queue.work(problem);
  others.clear();  // joins
  return queue.status();
}

Result<double> scale_of(const ir::Attention& attention, const Bindings& bindings) {
  const ir::ExprId roots[] = {attention.scale};
  RowEvaluator evaluator(attention, bindings, roots);
  const double no_score[] = {0};
  evaluator.run({}, no_score);
  const Cell& cell = evaluator.cells(attention.scale).front();
  if (cell.fault) return evaluator.describe(*cell.fault, 0);
  return cell.value;
}

io::HostTensor zeros(DType dtype, std::vector<std::int64_t> dims) {
  const auto count = static_cast<std::size_t>(io::element_count(dims));
  return {dtype, std::move(dims), std::vector<double>(count, 0.0)};
}

}  // namespace

Result<Outputs> evaluate(const ir::Attention& attention, const Inputs& inputs,
                         const Options& options) {
  ATTN_ASSIGN(const Bindings bindings, bind(attention, inputs, options.unrounded));
  ATTN_ASSIGN(const double scale, scale_of(attention, bindings));
  const ir::Dims& dims = attention.dims;
  const DType dtype = options.unrounded ? DType::f64 : DType::f32;
  const io::HostTensor rows = zeros(dtype, {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq]});
  Outputs outputs = {zeros(dtype, {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq], dims[Dim::Dv]}),
                     rows, rows, rows};
  ATTN_RETURN_IF_ERROR(run_rows({attention, bindings, scale, outputs}, options.threads));
  if (!options.unrounded) {
    for (double& value : outputs.o.values) value = round_to(attention.dtype, value);
  }
  return outputs;
}

}  // namespace attn::reference
