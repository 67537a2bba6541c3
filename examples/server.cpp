// A server: threads serve requests from a queue, each with its own stream and outputs, and share
// one executable.
//
//   attnc compile specs/causal.attn --target native -o causal.attnplan
//   server causal.attnplan [THREADS [REQUESTS]]
//
// Each request uses one of a few sets of inputs in device memory; the thread's binding is given the
// addresses of that set. Checks that requests for the same inputs get the same bytes as the first
// one. Works with every forward plan without params.
#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "common.h"

namespace {

using examples::Tensor;
using Tensors = std::vector<Tensor>;  // in the order of executable.tensors(), or a subset

constexpr int kInputSets = 3;

class Queue {
 public:
  void push(int request) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      requests_.push_back(request);
    }
    changed_.notify_one();
  }
  void close() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  // Blocks; returns nullopt when the queue is closed and empty.
  std::optional<int> pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !requests_.empty(); });
    if (requests_.empty()) return std::nullopt;
    const int request = requests_.front();
    requests_.pop_front();
    return request;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> requests_;
  bool closed_ = false;
};

using Answer = std::vector<examples::Bytes>;  // the outputs

// The first answer for each set of inputs, and counts of all and of differing answers.
class Record {
 public:
  void add(int input_set, const Answer& answer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [first, is_first] = first_.emplace(input_set, answer);
    served_ += 1;
    if (!is_first && first->second != answer) different_ += 1;
  }
  void fail(const attn::Error& error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = error;
  }
  int served() const { return served_; }
  int different() const { return different_; }
  const std::optional<attn::Error>& failure() const { return failure_; }

 private:
  std::mutex mutex_;
  std::map<int, Answer> first_;
  std::optional<attn::Error> failure_;
  int served_ = 0;
  int different_ = 0;
};

// Allocates the inputs, or the outputs, of a plan.
attn::Result<Tensors> make_tensors(const attn::Runtime& runtime, const attn::Executable& executable,
                                   bool outputs, unsigned seed) {
  Tensors tensors;
  for (const attn::TensorInfo& info : executable.tensors()) {
    if (info.is_output != outputs) continue;
    ATTN_TRY_ASSIGN(auto tensor, examples::make_tensor(runtime, info, seed));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<void*> addresses_of(const attn::Executable& executable, const Tensors& inputs,
                                const Tensors& outputs) {
  std::vector<void*> addresses;
  auto input = inputs.begin(), output = outputs.begin();
  for (const attn::TensorInfo& info : executable.tensors()) {
    addresses.push_back((info.is_output ? *output++ : *input++).memory.data());
  }
  return addresses;
}

attn::Result<Answer> read(const Tensors& outputs) {
  Answer answer;
  for (const Tensor& output : outputs) {
    ATTN_TRY_ASSIGN(auto bytes, examples::download_bytes(output));
    answer.push_back(std::move(bytes));
  }
  return answer;
}

// The body of a worker thread.
attn::Status serve(const attn::Runtime& runtime, const attn::Executable& executable,
                   const std::vector<Tensors>& inputs, Queue& queue, Record& record) {
  ATTN_TRY_ASSIGN(const auto stream, attn::Stream::create(runtime));
  ATTN_TRY_ASSIGN(const auto outputs, make_tensors(runtime, executable, true, 0));
  attn::Arguments arguments;
  for (const Tensor& tensor : inputs.front()) arguments.tensor(tensor.info.name, view_of(tensor));
  for (const Tensor& tensor : outputs) arguments.tensor(tensor.info.name, view_of(tensor));
  ATTN_TRY_ASSIGN(auto binding, executable.bind(arguments));

  while (const auto request = queue.pop()) {
    const int input_set = *request % kInputSets;
    const Tensors& chosen = inputs[static_cast<std::size_t>(input_set)];
    ATTN_TRY(binding.set_addresses(addresses_of(executable, chosen, outputs)));
    ATTN_TRY(binding.execute(stream.handle()));
    ATTN_TRY(stream.synchronize());
    ATTN_TRY_ASSIGN(const auto answer, read(outputs));
    record.add(input_set, answer);
  }
  return {};
}

void serve_all(const attn::Runtime& runtime, const attn::Executable& executable,
               const std::vector<Tensors>& inputs, int threads, int requests, Record& record) {
  Queue queue;
  std::vector<std::thread> workers;
  workers.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      const attn::Status status = serve(runtime, executable, inputs, queue, record);
      if (!status.ok()) record.fail(status.error());
    });
  }
  for (int i = 0; i < requests; ++i) queue.push(i);
  queue.close();
  for (std::thread& worker : workers) worker.join();
}

attn::Status run(const std::string& path, int threads, int requests) {
  attn::RuntimeOptions options;
  options.most_handles = std::min(threads, 64);
  ATTN_TRY_ASSIGN(const auto runtime, attn::Runtime::open(options));
  ATTN_TRY_ASSIGN(const auto executable, attn::Executable::load_file(runtime, path));
  std::vector<Tensors> inputs;
  for (int i = 0; i < kInputSets; ++i) {
    ATTN_TRY_ASSIGN(auto made,
                    make_tensors(runtime, executable, false, static_cast<unsigned>(i + 1)));
    inputs.push_back(std::move(made));
  }

  Record record;
  serve_all(runtime, executable, inputs, threads, requests, record);
  if (record.failure()) return *record.failure();
  std::printf("%d of %d requests served by %d threads, %d answers differ from the first\n",
              record.served(), requests, threads, record.different());
  if (record.different() == 0) return {};
  return attn::Error{attn::Code::mismatch, "equal requests got different answers", {}, {}};
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 2 ? std::atoi(argv[2]) : 4;
  const int requests = argc > 3 ? std::atoi(argv[3]) : 100;
  if (argc < 2 || argc > 4 || threads < 1 || requests < 1) {
    return examples::usage("server PLAN [THREADS [REQUESTS]]");
  }
  return examples::end_with(run(argv[1], threads, requests));
}
