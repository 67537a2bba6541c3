#include "bench/timing.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench/quiet.h"
#include "bench/statistics.h"
#include "runtime/cuda/stream.h"

namespace attn::bench {
namespace {

double rounded(double value, int digits) {
  const double unit = std::pow(10.0, digits);
  return std::round(value * unit) / unit;
}

// CUDA objects for taking samples.
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

Result<double> sample_ms(Instruments& tools, execute::Binding& binding,
                         std::chrono::nanoseconds pause) {
  void* stream = tools.stream.handle();
  ATTN_RETURN_IF_ERROR(tools.flush.enqueue(stream));
  ATTN_RETURN_IF_ERROR(tools.pause.enqueue(stream, pause));
  ATTN_RETURN_IF_ERROR(tools.start.record(stream));
  ATTN_RETURN_IF_ERROR(binding.execute(stream));
  ATTN_RETURN_IF_ERROR(tools.end.record(stream));
  ATTN_RETURN_IF_ERROR(tools.end.synchronize());
  return tools.end.milliseconds_since(tools.start);
}

// Host microseconds per call. The queue is empty before the first call.
Result<double> block_us(const cuda::Stream& stream, int calls,
                        const std::function<Status(void*)>& call) {
  ATTN_RETURN_IF_ERROR(stream.synchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) ATTN_RETURN_IF_ERROR(call(stream.handle()));
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / calls;
}

Status check_positive(const char* what, int value) {
  if (value >= 1) return {};
  return Status(ErrorCode::invalid_argument, fmt::format("{} must be at least 1", what));
}

}  // namespace

Result<Timing> time_on_device(const cuda::Device& device, execute::Binding& binding,
                              const TimingOptions& options) {
  ATTN_RETURN_IF_ERROR(check_positive("the number of runs", options.runs));
  ATTN_ASSIGN(Instruments tools, Instruments::create(device));
  for (int i = 0; i < options.warmup; ++i) {
    ATTN_RETURN_IF_ERROR(binding.execute(tools.stream.handle()));
  }
  Timing timing;
  for (int i = 0; i < options.runs; ++i) {
    ATTN_ASSIGN(const double sample, sample_ms(tools, binding, options.pause));
    timing.samples_ms.push_back(sample);
  }
  timing.median_ms = quantile(timing.samples_ms, 0.5);
  timing.p10_ms = quantile(timing.samples_ms, 0.1);
  timing.p90_ms = quantile(timing.samples_ms, 0.9);
  timing.tflops = options.flop / (timing.median_ms * 1e-3) * 1e-12;
  return timing;
}

Result<std::vector<HostTiming>> time_on_host(const cuda::Device& device,
                                             const std::vector<Way>& ways,
                                             const HostTimingOptions& options) {
  ATTN_RETURN_IF_ERROR(check_positive("the number of blocks", options.blocks));
  ATTN_RETURN_IF_ERROR(check_positive("the number of calls", options.calls));
  ATTN_ASSIGN(const cuda::Stream stream, cuda::Stream::create(device));
  std::vector<std::vector<double>> us(ways.size()), ratios(ways.size());
  for (int block = -1; block < options.blocks; ++block) {
    double first = 0;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      ATTN_ASSIGN(const double taken, block_us(stream, options.calls, ways[i].call));
      if (i == 0) first = taken;
      if (block < 0) continue;  // warm-up
      us[i].push_back(taken);
      ratios[i].push_back(taken / first);
    }
  }
  ATTN_RETURN_IF_ERROR(stream.synchronize());
  std::vector<HostTiming> timings;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    timings.push_back({ways[i].name, quantile(us[i], 0.5), quantile(ratios[i], 0.5)});
  }
  return timings;
}

std::vector<Way> bare_and_ours(BareExecute& bare, execute::Binding& binding) {
  return {{"bare", [&](void* stream) { return bare.execute(stream); }},
          {"execute", [&](void* stream) { return binding.execute(stream); }}};
}

nlohmann::ordered_json json_of(const Timing& timing) {
  return {{"median_ms", rounded(timing.median_ms, 6)},
          {"p10_ms", rounded(timing.p10_ms, 6)},
          {"p90_ms", rounded(timing.p90_ms, 6)},
          {"runs", timing.samples_ms.size()},
          {"tflops", rounded(timing.tflops, 3)}};
}

nlohmann::ordered_json json_of(const std::vector<HostTiming>& timings) {
  nlohmann::ordered_json json;
  for (const HostTiming& timing : timings) json[timing.name + "_us"] = rounded(timing.us, 3);
  for (std::size_t i = 1; i < timings.size(); ++i)
    json[timings[i].name + "_ratio"] = rounded(timings[i].ratio, 4);
  return json;
}

}  // namespace attn::bench
