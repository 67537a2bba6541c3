// Runs a child process with text on its standard input, and reads its output line by line.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::worker {

struct Ending {
  enum class How {
    stopped,    // stopped by the line sink
    exited,     // exited with `code`
    signalled,  // killed by `signal`
    timed_out,  // killed after the timeout
    too_large,  // killed beyond ProcessOptions::most_bytes
    cancelled,  // killed on a stop request
    unknown,    // no status, because the caller ignores SIGCHLD
  };
  How how = How::unknown;
  int code = 0;
  int signal = 0;
  std::string error_output;  // the end of its standard error output
};

// Receives a complete line without its line end. Return true to stop and kill the child.
using LineSink = std::function<bool(std::string_view line)>;

// Set to "1" in the environment of a worker, which otherwise inherits the caller's.
inline constexpr const char* kWorkerMark = "ATTN_WORKER";

// Set in every child's environment to "PID SECONDS": its caller and its time limit.
inline constexpr const char* kCallerMark = "ATTN_CALLER";

// Call it first in a program that run_process may have started. From then on the program is killed
// when its caller dies, and by SIGALRM some seconds after its time limit. Exits at once if the
// caller is already dead. Does nothing in other processes. Removes kCallerMark from the
// environment, so call it before starting threads.
void end_with_caller();

struct ProcessOptions {
  std::chrono::milliseconds timeout;
  std::stop_token stop{};       // a stop request kills the child at once
  std::int64_t most_bytes = 0;  // of memory that the child may hold; 0: no limit
  bool is_a_worker = false;     // sets kWorkerMark
};

// Runs `command` (searched in PATH if it has no slash) in its own process group and waits for it.
// The child is always reaped, and no file descriptor leaks. If this process is killed, a child that
// called end_with_caller() dies too. The input may have any size: it is a file, not a pipe, so
// neither side blocks. Its memory is looked at several times a second. Errors: worker, if the child
// cannot be started.
Result<Ending> run_process(const std::vector<std::string>& command, std::string_view input,
                           const ProcessOptions& options, const LineSink& sink);

// "SIGFPE"; "signal 77" for a signal without a name.
std::string signal_name(int signal);

}  // namespace attn::worker
