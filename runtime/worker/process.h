// A child process with a text on its standard input, whose output is read line by line.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::worker {

struct Ending {
  enum class How {
    stopped,    // the line sink had what it wanted
    exited,     // by itself, with `code`
    signalled,  // killed by `signal`
    timed_out,  // killed because it took too long
    cancelled,  // killed because the caller wanted no more of it
    unknown,    // gone, but the caller ignores SIGCHLD and the system keeps no status
  };
  How how = How::unknown;
  int code = 0;
  int signal = 0;
  std::string error_output;  // the end of what it wrote to standard error
};

// A complete line without its end. Return true to stop: the child is killed.
using LineSink = std::function<bool(std::string_view line)>;

// Set to "1" in the environment of a worker, which otherwise is the caller's.
inline constexpr const char* kWorkerMark = "ATTN_WORKER";

struct ProcessOptions {
  std::chrono::milliseconds timeout;
  std::stop_token stop{};    // when it is requested the child is killed at once
  bool is_a_worker = false;  // has kWorkerMark, which no other child has
};

// Runs `command` (looked up in PATH when it has no slash) in a process group of its own and waits
// for its end. Whatever happens, the child is reaped and no file descriptor is left. The input may
// have any size: it is a file, not a pipe, so neither side waits for the other. Errors: worker,
// when the child could not be started.
Result<Ending> run_process(const std::vector<std::string>& command, std::string_view input,
                           const ProcessOptions& options, const LineSink& sink);

// "SIGFPE"; "signal 77" for one without a name.
std::string signal_name(int signal);

}  // namespace attn::worker
