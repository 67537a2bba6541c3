// Compiles in another process, so that a crash in cuDNN does not crash the caller, and that cuDNN
// and NVRTC can be stopped.
//
// The client starts a worker (`attnc worker`, or any program that calls serve()), sends one request
// as JSON on its standard input, and reads JSON lines from its standard output: progress before
// each step, and an answer for each graph or kernel. The worker compiles against a stub driver
// library that reports no device (runtime/nodriver, embedded in the binary), so the result does not
// depend on whether the host has a GPU or a driver.
//
// A worker has ATTN_WORKER=1 in its environment, where compile() and cudnn_version() do not start
// another one: otherwise a program that is started as a worker but does not call serve() would
// start itself endlessly.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/backend_graph.h"
#include "runtime/plan/plan.h"

namespace attn::worker {

struct Options {
  // Program and arguments, for a program that calls serve(); empty = this program, "worker".
  std::vector<std::string> command;
  std::string cudnn_folder;         // see cudnn::Library::load
  std::string report_folder = ".";  // folder for repro files of worker deaths
  // A worker that takes longer is killed; error `worker`. Includes the search for the node that
  // crashed a worker: after the timeout the death is reported without a node.
  std::chrono::seconds timeout{300};
  // A worker that holds more memory is killed; error `worker`. 0: no limit.
  std::int64_t most_bytes = std::int64_t{4} << 30;
};

struct Compiled {
  plan::CompiledStep step;
  std::int64_t cudnn_version = 0;
};

// Errors: those of cudnn::compile, unchanged; `worker` if this process is a worker itself, or if
// the worker could not be started, timed out, or died: the message has the signal, the last
// progress, the source position of the node that cuDNN was processing and the path of the repro
// file (the request, which `attnc worker < FILE` replays). Payload: {"signal": "SIGFPE", "stage":
// .., "node": 7, "line": 9, "column": 3, "repro": "path"}.
Result<Compiled> compile(const graph::BackendGraph& graph, const std::string& device_json,
                         const Options& options);

// Several graphs (one or more) in one worker, in order; the timeout is that of all. Errors: those
// of the first that fails.
Result<std::vector<Compiled>> compile(std::span<const graph::BackendGraph> graphs,
                                      const std::string& device_json, const Options& options);

// The engine config that cuDNN would try first, without a plan: see cudnn::offer. Errors: those of
// compile().
Result<Compiled> offer(const graph::BackendGraph& graph, const std::string& device_json,
                       const Options& options);
Result<std::vector<Compiled>> offer(std::span<const graph::BackendGraph> graphs,
                                    const std::string& device_json, const Options& options);

// The version of the worker's cuDNN. Starts a worker to ask. Errors: cudnn, worker.
Result<std::int64_t> cudnn_version(const Options& options);

// A kernel in CUDA C++, for the compute capability sm / 10: general, or element-wise.
struct KernelSource {
  std::string text;
  std::int64_t sm = 0;
  bool is_general = false;
};
struct CompiledKernel {
  std::string image;  // a cubin
  std::string log;    // what the compiler says of it
};

// Compiles a kernel in a worker that serves kernels. Errors: those of its compiler, unchanged;
// `worker` as above.
Result<CompiledKernel> compile_kernel(const KernelSource& source, const Options& options);

// Several kernels (one or more) in one worker, in order; the timeout is that of all. Errors: those
// of the first that fails.
Result<std::vector<CompiledKernel>> compile_kernels(std::span<const KernelSource> sources,
                                                    const Options& options);

// What a worker compiles kernels with, given the source and Options::cudnn_folder.
using KernelCompiler =
    std::function<Result<CompiledKernel>(const KernelSource&, const std::string& cudnn_folder)>;

// The worker side: reads one request from `input_fd`, answers to `output_fd`. Without a compiler it
// refuses kernels. Returns the exit code.
int serve(int input_fd, int output_fd, const KernelCompiler& compiler = {});

}  // namespace attn::worker
