#include "bench/timing.h"

#include <fmt/format.h>

#include <functional>

#include "bench/statistics.h"
#include "runtime/cuda/quiet.h"
#include "runtime/cuda/stream.h"

namespace attn::bench {
namespace {

// What a sample is taken with.
struct Instruments {
  cuda::Stream stream;
  cuda::Pause pause;
  cuda::L2Flush flush;
  cuda::Event start;
  cuda::Event end;

  static Result<Instruments> create(const cuda::Device& device) {
    ATTN_ASSIGN(cuda::Stream stream, cuda::Stream::create(device));
    ATTN_ASSIGN(cuda::Pause pause, cuda::Pause::create(device));
    ATTN_ASSIGN(cuda::L2Flush flush, cuda::L2Flush::create(device));
    ATTN_ASSIGN(cuda::Event start, cuda::Event::create(device));
    ATTN_ASSIGN(cuda::Event end, cuda::Event::create(device));
    return Instruments{std::move(stream), std::move(pause), std::move(flush), std::move(start),
                       std::move(end)};
  }
};

Result<double> sample_ms(Instruments& tools, execute::Executable& executable,
                         const execute::Binding& binding, std::chrono::nanoseconds pause) {
  void* stream = tools.stream.handle();
  ATTN_RETURN_IF_ERROR(tools.flush.enqueue(stream));
  ATTN_RETURN_IF_ERROR(tools.pause.enqueue(stream, pause));
  ATTN_RETURN_IF_ERROR(tools.start.record(stream));
  ATTN_RETURN_IF_ERROR(executable.execute(binding, stream));
  ATTN_RETURN_IF_ERROR(tools.end.record(stream));
  ATTN_RETURN_IF_ERROR(tools.end.synchronize());
  return tools.end.milliseconds_since(tools.start);
}

// Host microseconds a call, the queue empty before the first.
template <typename Call>
Result<double> block_us(const cuda::Stream& stream, int calls, Call&& call) {
  ATTN_RETURN_IF_ERROR(stream.synchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) ATTN_RETURN_IF_ERROR(call());
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / calls;
}

Status check_positive(const char* what, int value) {
  if (value >= 1) return {};
  return Status(ErrorCode::invalid_argument, fmt::format("{} must be at least 1", what));
}

}  // namespace

Result<Timing> time_on_device(execute::Executable& executable, const execute::Binding& binding,
                              const TimingOptions& options) {
  ATTN_RETURN_IF_ERROR(check_positive("the number of runs", options.runs));
  ATTN_ASSIGN(Instruments tools, Instruments::create(executable.device()));
  for (int i = 0; i < options.warmup; ++i) {
    ATTN_RETURN_IF_ERROR(executable.execute(binding, tools.stream.handle()));
  }
  Timing timing;
  for (int i = 0; i < options.runs; ++i) {
    ATTN_ASSIGN(const double sample, sample_ms(tools, executable, binding, options.pause));
    timing.samples_ms.push_back(sample);
  }
  timing.median_ms = quantile(timing.samples_ms, 0.5);
  timing.p10_ms = quantile(timing.samples_ms, 0.1);
  timing.p90_ms = quantile(timing.samples_ms, 0.9);
  timing.tflops = options.flop / (timing.median_ms * 1e-3) * 1e-12;
  return timing;
}

Result<HostTiming> time_on_host(execute::Executable& executable, const execute::Binding& binding,
                                BareExecute& bare, const HostTimingOptions& options) {
  ATTN_RETURN_IF_ERROR(check_positive("the number of blocks", options.blocks));
  ATTN_RETURN_IF_ERROR(check_positive("the number of calls", options.calls));
  ATTN_ASSIGN(const cuda::Stream stream, cuda::Stream::create(executable.device()));
  const auto ours = [&] { return executable.execute(binding, stream.handle()); };
  const auto theirs = [&] { return bare.execute(stream.handle()); };
  ATTN_RETURN_IF_ERROR(block_us(stream, options.calls, ours));
  ATTN_RETURN_IF_ERROR(block_us(stream, options.calls, theirs));
  std::vector<double> ours_us, bare_us, ratios;
  for (int block = 0; block < options.blocks; ++block) {
    ATTN_ASSIGN(const double a, block_us(stream, options.calls, ours));
    ATTN_ASSIGN(const double b, block_us(stream, options.calls, theirs));
    ours_us.push_back(a);
    bare_us.push_back(b);
    ratios.push_back(a / b);
  }
  ATTN_RETURN_IF_ERROR(stream.synchronize());
  return HostTiming{quantile(ours_us, 0.5), quantile(bare_us, 0.5), quantile(ratios, 0.5)};
}

std::string to_json(const Timing& timing) {
  return fmt::format(
      R"({{"median_ms": {:.6f}, "p10_ms": {:.6f}, "p90_ms": {:.6f}, "runs": {}, "tflops": {:.3f}}})",
      timing.median_ms, timing.p10_ms, timing.p90_ms, timing.samples_ms.size(), timing.tflops);
}

std::string to_json(const HostTiming& timing) {
  return fmt::format(R"({{"execute_us": {:.3f}, "bare_us": {:.3f}, "ratio": {:.4f}}})",
                     timing.execute_us, timing.bare_us, timing.ratio);
}

}  // namespace attn::bench
