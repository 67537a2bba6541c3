// Compiling in another process, where a crash inside cuDNN cannot take the caller along.
//
// The client starts a worker (`attnc worker`, or any program that calls serve()), sends one request
// as JSON on its standard input, and reads JSON lines from its standard output: progress before
// each step, then one answer. The worker compiles against a driver library of our own that reports
// no device (runtime/nodriver, carried inside the binary), so the result does not depend on whether
// the host has a GPU or a driver.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/backend_graph.h"
#include "runtime/plan/plan.h"

namespace attn::worker {

struct Options {
  std::vector<std::string> command;   // program and arguments; empty = this program, "worker"
  std::string cudnn_folder;           // as for cudnn::Library::load
  std::string report_folder = ".";    // where a repro file goes when the worker dies
  std::chrono::seconds timeout{300};  // a worker that takes longer is killed; error `worker`
};

struct Compiled {
  plan::CompiledStep step;
  std::int64_t cudnn_version = 0;
};

// Errors: those of cudnn::compile as they are; `worker` when it could not be started, ran out of
// time, or died: the message has the signal's name, the last progress, the source position of the
// node that cuDNN was looking at and the path of the repro file (the request, which
// `attnc worker < FILE` replays). Payload: {"signal": "SIGFPE", "stage": .., "node": 7, "line": 9,
// "column": 3, "repro": "path"}.
Result<Compiled> compile(const graph::BackendGraph& graph, const std::string& device_json,
                         const Options& options);

// The version of the cuDNN that the worker would use, asked of a worker. Errors: cudnn, worker.
Result<std::int64_t> cudnn_version(const Options& options);

// The worker's side: one request from `input_fd`, answers to `output_fd`. Returns the exit code.
int serve(int input_fd, int output_fd);

}  // namespace attn::worker
