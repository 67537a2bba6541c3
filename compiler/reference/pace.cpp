#include "compiler/reference/pace.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "compiler/reference/row_softmax.h"

namespace attn::reference {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Computes a row, with the sum of weights times v.
Status run_row(const Problem& problem, RowSoftmax& row, std::int64_t index,
               std::vector<double>& sums) {
  ATTN_RETURN_IF_ERROR(row.run(index));
  if (row.is_empty()) return {};
  const io::HostTensor& v = problem.tensor("v");
  for (std::size_t column = 0; column < row.weights().size(); ++column) {
    if (!row.is_visible(column)) continue;
    const double* from =
        row_of(v, row.place().batch, row.kv_head(), static_cast<std::int64_t>(column));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += row.weights()[column] * from[i];
  }
  return {};
}

// Mean time of one row. 0 if a row has no value: the evaluation will say why.
double seconds_of_row(const Problem& problem) {
  constexpr double kBudget = 0.2;
  constexpr std::int64_t kMostRows = 1000;
  RowSoftmax row(problem);
  std::vector<double> sums(static_cast<std::size_t>(problem.size(ir::Dim::Dv)));
  const std::int64_t rows = problem.rows();
  const std::int64_t samples = std::min(rows, kMostRows);
  if (!run_row(problem, row, rows / 2, sums).ok()) return 0;  // the first one allocates
  const Clock::time_point begin = Clock::now();
  std::int64_t done = 0;
  while (done < samples && (done == 0 || seconds_since(begin) < kBudget)) {
    // Rows are taken in steps of the golden section, so that any number of rows is spread over all.
    constexpr double kGoldenSection = 0.6180339887498949;
    const double place = kGoldenSection * static_cast<double>(++done);
    const auto index =
        static_cast<std::int64_t>((place - std::floor(place)) * static_cast<double>(rows));
    if (!run_row(problem, row, std::min(index, rows - 1), sums).ok()) return 0;
  }
  return seconds_since(begin) / static_cast<double>(done);
}

}  // namespace

Status tell_pace(const Problem& problem, std::int64_t threads, double cost,
                 const Observer& observer) {
  if (!observer.begins || problem.rows() == 0) return {};
  const double all = seconds_of_row(problem) * cost * static_cast<double>(problem.rows());
  return observer.begins(all / static_cast<double>(std::min(threads, problem.rows())));
}

Advance::Advance(std::int64_t rows, const Observer& observer)
    : rows_(rows), step_(std::max<std::int64_t>(1, rows / 1000)), observer_(observer) {}

void Advance::row() {
  if (!observer_.advances) return;
  const std::int64_t done = ++done_;
  if (done % step_ == 0) observer_.advances(done, rows_);
}

}  // namespace attn::reference
