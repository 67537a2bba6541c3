#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "runtime/worker/locate.h"
#include "runtime/worker/process.h"
#include "runtime/worker/protocol.h"
#include "runtime/worker/report.h"
#include "runtime/worker/worker.h"

namespace attn::worker {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A probe of locate_death() that runs longer than this is past the point of the crash.
constexpr milliseconds kProbeTimeout = std::chrono::seconds(60);

// Errors: worker if this process is a worker, see worker.h.
Status check_not_a_worker() {
  if (std::getenv(kWorkerMark) == nullptr) return Status();
  return Status(ErrorCode::worker,
                fmt::format("a compile worker cannot start another one ({} is set); set "
                            "Options::command to a program that calls worker::serve",
                            kWorkerMark));
}

std::vector<std::string> command_of(const Options& options) {
  if (!options.command.empty()) return options.command;
  return {"/proc/self/exe", "worker"};
}

// The outcome of one conversation with a worker.
struct Talk {
  std::vector<Message> made;  // answers with what was compiled so far
  std::optional<Result<Message>>
      answer;  // the last one, or the only one; nullopt: it exited without
  cudnn::Progress last;
  Ending ending;
};

bool is_compiled(const Message& message) {
  return std::holds_alternative<Compiled>(message) ||
         std::holds_alternative<CompiledKernel>(message);
}

// `count`: how many answers a request to compile has.
Result<Talk> talk(const std::string& request, const Options& options, milliseconds timeout,
                  std::size_t count = 1) {
  Talk talk;
  const LineSink sink = [&talk, count](std::string_view line) {
    Result<Message> message = message_from_line(line);
    if (message.ok() && std::holds_alternative<cudnn::Progress>(*message)) {
      talk.last = std::get<cudnn::Progress>(std::move(*message));
      return false;
    }
    if (message.ok() && is_compiled(*message)) {
      talk.made.push_back(*message);
      talk.last = {};
      if (talk.made.size() < count) return false;
    }
    talk.answer = std::move(message);
    return true;
  };
  const ProcessOptions limits{timeout, {}, options.most_bytes, true};
  ATTN_ASSIGN(talk.ending, run_process(command_of(options), request, limits, sink));
  return talk;
}

template <typename T>
Result<T> unpack(const Result<Message>& answer) {
  if (!answer.ok()) return answer.error();
  if (const auto* error = std::get_if<Error>(&*answer)) return *error;
  if (const auto* value = std::get_if<T>(&*answer)) return *value;
  return Result<T>(ErrorCode::worker, "the worker sent an answer of the wrong kind");
}

// All answers of a worker that has answered.
template <typename T>
Result<std::vector<T>> unpack_all(Talk talk) {
  ATTN_RETURN_IF_ERROR(unpack<T>(*talk.answer).status());
  std::vector<T> all;
  for (Message& message : talk.made) {
    ATTN_ASSIGN(T one, unpack<T>(std::move(message)));
    all.push_back(std::move(one));
  }
  return all;
}

bool died(const Talk& talk) {
  return !talk.answer.has_value() && talk.ending.how == Ending::How::signalled;
}

// The node that the worker named, else the one found by bisection.
std::optional<int> node_of_death(const Talk& talk, const CompileRequest& request,
                                 const Options& options, Clock::time_point deadline) {
  if (talk.last.node >= 0) return talk.last.node;
  if (!died(talk)) return std::nullopt;
  const auto dies = [&](const graph::BackendGraph& graph) -> std::optional<bool> {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return std::nullopt;
    const CompileRequest probe{
        request.cudnn_folder, request.device_json, {graph}, request.only_offer};
    const auto outcome = worker::talk(to_json(probe), options, std::min(left, kProbeTimeout));
    if (!outcome.ok() || Clock::now() >= deadline) return std::nullopt;
    return died(*outcome);
  };
  return locate_death(request.graphs.front(), dies);
}

Result<std::vector<Compiled>> ask(const CompileRequest& request, const Options& options) {
  ATTN_RETURN_IF_ERROR(check_not_a_worker());
  const Clock::time_point deadline = Clock::now() + options.timeout;
  ATTN_ASSIGN(Talk outcome,
              talk(to_json(request), options, options.timeout, request.graphs.size()));
  if (outcome.answer) return unpack_all<Compiled>(std::move(outcome));
  // The repro has only the graph that it died of.
  const CompileRequest fatal{request.cudnn_folder,
                             request.device_json,
                             {request.graphs[outcome.made.size()]},
                             request.only_offer};
  const Death death{outcome.ending, outcome.last, node_of_death(outcome, fatal, options, deadline),
                    options.timeout, options.most_bytes};
  return report_death(death, fatal.graphs.front(), to_json(fatal), options.report_folder);
}

// A worker that was asked for nothing of a graph.
Death death_of(const Talk& talk, const Options& options) {
  return {talk.ending, talk.last, std::nullopt, options.timeout, options.most_bytes};
}

Result<Compiled> ask_one(const graph::BackendGraph& graph, const std::string& device_json,
                         bool only_offer, const Options& options) {
  ATTN_ASSIGN(std::vector<Compiled> all,
              ask({options.cudnn_folder, device_json, {graph}, only_offer}, options));
  return std::move(all.front());
}

}  // namespace

Result<Compiled> compile(const graph::BackendGraph& graph, const std::string& device_json,
                         const Options& options) {
  return ask_one(graph, device_json, false, options);
}

Result<std::vector<Compiled>> compile(std::span<const graph::BackendGraph> graphs,
                                      const std::string& device_json, const Options& options) {
  return ask({options.cudnn_folder, device_json, {graphs.begin(), graphs.end()}, false}, options);
}

Result<Compiled> offer(const graph::BackendGraph& graph, const std::string& device_json,
                       const Options& options) {
  return ask_one(graph, device_json, true, options);
}

Result<std::vector<Compiled>> offer(std::span<const graph::BackendGraph> graphs,
                                    const std::string& device_json, const Options& options) {
  return ask({options.cudnn_folder, device_json, {graphs.begin(), graphs.end()}, true}, options);
}

Result<std::int64_t> cudnn_version(const Options& options) {
  ATTN_RETURN_IF_ERROR(check_not_a_worker());
  const std::string text = to_json(VersionRequest{options.cudnn_folder});
  ATTN_ASSIGN(const Talk outcome, talk(text, options, options.timeout));
  if (outcome.answer) return unpack<std::int64_t>(*outcome.answer);
  return report_death(death_of(outcome, options), {}, text, options.report_folder);
}

Result<CompiledKernel> compile_kernel(const KernelSource& source, const Options& options) {
  ATTN_ASSIGN(std::vector<CompiledKernel> all, compile_kernels({&source, 1}, options));
  return std::move(all.front());
}

Result<std::vector<CompiledKernel>> compile_kernels(std::span<const KernelSource> sources,
                                                    const Options& options) {
  ATTN_RETURN_IF_ERROR(check_not_a_worker());
  const KernelsRequest request{options.cudnn_folder, {sources.begin(), sources.end()}};
  ATTN_ASSIGN(Talk outcome, talk(to_json(request), options, options.timeout, sources.size()));
  if (outcome.answer) return unpack_all<CompiledKernel>(std::move(outcome));
  // The repro has only the kernel that it died of.
  const KernelsRequest fatal{options.cudnn_folder, {sources[outcome.made.size()]}};
  return report_death(death_of(outcome, options), {}, to_json(fatal), options.report_folder);
}

}  // namespace attn::worker
