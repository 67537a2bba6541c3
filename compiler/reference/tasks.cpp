#include "compiler/reference/tasks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

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
    const double* from = row_of(v, row.place().batch, row.kv_head(), row.key(column));
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

// Hands out tasks. Keeps the error of the first task that fails, and exceptions, which must not
// leave a thread's function.
class Queue {
 public:
  explicit Queue(std::int64_t count) : count_(count) {}

  void work(const std::function<Worker()>& make_worker) {
    try {
      run(make_worker());
    } catch (...) {
      const std::lock_guard lock(mutex_);
      thrown_ = std::current_exception();
      failed_ = -1;
    }
  }

  // Call after all threads are done. Rethrows exceptions.
  Status status() const {
    if (thrown_) std::rethrow_exception(thrown_);
    return error_ ? Status(*error_) : Status();
  }

 private:
  void run(const Worker& worker) {
    for (std::int64_t task = next_++; task < count_ && task < failed_; task = next_++) {
      const Status status = worker(task);
      if (!status.ok()) fail(task, status.error());
    }
  }

  void fail(std::int64_t task, const Error& error) {
    const std::lock_guard lock(mutex_);
    if (task >= failed_) return;
    failed_ = task;
    error_ = error;
  }

  const std::int64_t count_;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<std::int64_t> failed_ = std::numeric_limits<std::int64_t>::max();
  std::mutex mutex_;
  std::optional<Error> error_;
  std::exception_ptr thrown_;
};

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

int threads_of(int threads) {
  return threads > 0 ? threads
                     : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Status run_tasks(std::int64_t count, int threads, const std::function<Worker()>& make_worker) {
  threads = threads_of(threads);
  Queue queue(count);
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, count); ++i) {
    try {
      others.emplace_back([&] { queue.work(make_worker); });
    } catch (const std::system_error&) {
      break;  // no more threads: continue with the existing ones
    }
  }
  queue.work(make_worker);
  others.clear();  // joins
  return queue.status();
}

}  // namespace attn::reference
