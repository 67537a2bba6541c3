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

// In the environment of every child: "PID SECONDS", its caller and how long it may take.
inline constexpr const char* kCallerMark = "ATTN_CALLER";

// For a program that run_process may have started, as the first thing it does: from then on it is
// killed when its caller dies, and by SIGALRM some seconds after the time is over in which the
// caller should have killed it. Ends the process at once when the caller is dead already. Does
// nothing in a process that run_process did not start. Takes kCallerMark out of the environment, so
// only before there are other threads.
void end_with_caller();

struct ProcessOptions {
  std::chrono::milliseconds timeout;
  std::stop_token stop{};    // when it is requested the child is killed at once
  bool is_a_worker = false;  // has kWorkerMark, which no other child has
};

// Runs `command` (looked up in PATH when it has no slash) in a process group of its own and waits
// for its end. Whatever happens, the child is reaped and no file descriptor is left. When this
// process is killed, a child that called end_with_caller() dies too. The input may
// have any size: it is a file, not a pipe, so neither side waits for the other. Errors: worker,
// when the child could not be started.
Result<Ending> run_process(const std::vector<std::string>& command, std::string_view input,
                           const ProcessOptions& options, const LineSink& sink);

// "SIGFPE"; "signal 77" for one without a name.
std::string signal_name(int signal);

}  // namespace attn::worker
