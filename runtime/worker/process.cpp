#include "runtime/worker/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/descriptors.h"

extern "C" char** environ;  // NOLINT: POSIX requires the program to declare it

namespace attn::worker {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kErrorOutputBytes = 4096;
constexpr std::size_t kReadBytes = std::size_t{1} << 16;
constexpr milliseconds kExitPoll{2};
constexpr milliseconds kMemoryPoll{50};

Status failed(const std::string& what) {
  return Status(ErrorCode::worker, "the compile worker could not be started: " + what);
}

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

// If the caller has closed its standard streams, a new descriptor may be 0 to 2, which the child's
// streams would overwrite.
FileDescriptor above_standard(FileDescriptor fd) {
  if (!fd.valid() || fd.get() > STDERR_FILENO) return fd;
  return FileDescriptor(fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return failed(errno_text("pipe2")).error();
  Pipe pipe{FileDescriptor(fds[0]), FileDescriptor(fds[1])};
  pipe.read = above_standard(std::move(pipe.read));
  pipe.write = above_standard(std::move(pipe.write));
  if (!pipe.read.valid() || !pipe.write.valid()) return failed(errno_text("fcntl")).error();
  return pipe;
}

Result<FileDescriptor> make_input(std::string_view text) {
  FileDescriptor file = above_standard(FileDescriptor(memfd_create("attn-request", MFD_CLOEXEC)));
  if (!file.valid()) return failed(errno_text("memfd_create")).error();
  if (!write_all(file.get(), text)) return failed(errno_text("write")).error();
  if (lseek(file.get(), 0, SEEK_SET) != 0) return failed(errno_text("lseek")).error();
  return file;
}

// The spawn calls return errors by value, and fail only if out of memory.
struct SpawnActions {
  posix_spawn_file_actions_t value;
  SpawnActions() { posix_spawn_file_actions_init(&value); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&value); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
};

struct SpawnAttributes {
  posix_spawnattr_t value;
  SpawnAttributes() { posix_spawnattr_init(&value); }
  ~SpawnAttributes() { posix_spawnattr_destroy(&value); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
};

// Gives the child its own process group, so that its children die with it; no signal blocked or
// ignored, whatever the caller's settings.
void set_defaults(SpawnAttributes& attributes) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes.value, &none);
  posix_spawnattr_setsigdefault(&attributes.value, &all);
  posix_spawnattr_setpgroup(&attributes.value, 0);
  posix_spawnattr_setflags(&attributes.value,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

// NULL-terminated, as the spawn calls require. Points into `texts`.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// How long after its time limit a child exits by itself.
constexpr auto kGrace = std::chrono::seconds(5);

std::vector<std::string> environment(const ProcessOptions& options) {
  const std::string worker = fmt::format("{}=", kWorkerMark);
  const std::string caller = fmt::format("{}=", kCallerMark);
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with(worker) && !text.starts_with(caller)) variables.emplace_back(text);
  }
  if (options.is_a_worker) variables.push_back(worker + "1");
  const auto limit = std::chrono::ceil<std::chrono::seconds>(options.timeout) + kGrace;
  variables.push_back(fmt::format("{}{} {}", caller, getpid(), limit.count()));
  return variables;
}

// Bytes that the process holds now; 0 if nobody knows.
std::int64_t bytes_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return file ? resident * sysconf(_SC_PAGESIZE) : 0;
}

bool is_alive(pid_t pid) { return kill(pid, 0) == 0 || errno == EPERM; }

// Becomes readable on a stop request.
class Alarm {
 public:
  static Result<FileDescriptor> make_event() {
    FileDescriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event.valid()) return failed(errno_text("eventfd")).error();
    return event;
  }
  Alarm(FileDescriptor event, const std::stop_token& stop)
      : event_(std::move(event)), ring_(stop, [this] { eventfd_write(event_.get(), 1); }) {}
  int fd() const { return event_.get(); }

 private:
  FileDescriptor event_;
  std::stop_callback<std::function<void()>> ring_;
};

Result<pid_t> spawn(const std::vector<std::string>& command, const ProcessOptions& options,
                    int input, int output, int errors) {
  SpawnActions actions;
  posix_spawn_file_actions_adddup2(&actions.value, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions.value, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions.value, errors, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions.value, STDERR_FILENO + 1);
  SpawnAttributes attributes;
  set_defaults(attributes);
  const std::vector<std::string> variables = environment(options);
  pid_t pid = -1;
  const int code = posix_spawnp(&pid, command.front().c_str(), &actions.value, &attributes.value,
                                pointers_to(command).data(), pointers_to(variables).data());
  if (code != 0) {
    return failed(command.front() + ": " + std::generic_category().message(code)).error();
  }
  return pid;
}

class Child {
 public:
  Child(pid_t pid, FileDescriptor output, FileDescriptor errors, const ProcessOptions& options,
        int alarm)
      : pid_(pid),
        output_(std::move(output)),
        errors_(std::move(errors)),
        stop_(options.stop),
        most_bytes_(options.most_bytes),
        alarm_(alarm) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The child is dead and reaped when this returns.
  Ending run(Clock::time_point deadline, const LineSink& sink) {
    Ending ending =
        read_until(deadline, sink) ? killed(Ending::How::stopped) : wait_until(deadline);
    ending.error_output = std::move(error_text_);
    return ending;
  }

 private:
  // True if the sink stopped it; false at the end of the output, at a limit, or on a stop request.
  bool read_until(Clock::time_point deadline, const LineSink& sink) {
    while ((output_.valid() || errors_.valid()) && !stop_.stop_requested() && !is_too_large()) {
      std::array<pollfd, 3> polled = {pollfd{output_.get(), POLLIN, 0},
                                      pollfd{errors_.get(), POLLIN, 0}, pollfd{alarm_, POLLIN, 0}};
      const int ready = poll(polled.data(), polled.size(), wait_for(deadline));
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0 || (ready == 0 && Clock::now() >= deadline)) return false;
      if (polled[1].revents != 0) read_errors();
      if (polled[0].revents != 0 && read_lines(sink)) return true;
    }
    return false;
  }

  int wait_for(Clock::time_point deadline) const {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const milliseconds most = most_bytes_ > 0 ? kMemoryPoll : milliseconds(1000 * 3600);
    return static_cast<int>(std::clamp(left, milliseconds(0), most).count());
  }

  bool is_too_large() const { return most_bytes_ > 0 && bytes_of(pid_) > most_bytes_; }

  void read_errors() {
    std::array<char, kReadBytes> buffer;
    const std::ptrdiff_t count = read_some(errors_.get(), buffer.data(), buffer.size());
    if (count <= 0) {
      errors_.close();
      return;
    }
    error_text_.append(buffer.data(), static_cast<std::size_t>(count));
    if (error_text_.size() > kErrorOutputBytes) {
      error_text_.erase(0, error_text_.size() - kErrorOutputBytes);
    }
  }

  bool read_lines(const LineSink& sink) {
    std::array<char, kReadBytes> buffer;
    const std::ptrdiff_t count = read_some(output_.get(), buffer.data(), buffer.size());
    if (count <= 0) {
      output_.close();
      return false;
    }
    std::string_view rest(buffer.data(), static_cast<std::size_t>(count));
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      line_.append(rest.substr(0, end));
      if (sink(line_)) return true;
      line_.clear();
      rest.remove_prefix(end + 1);
    }
    line_.append(rest);
    return false;
  }

  Ending wait_until(Clock::time_point deadline) {
    for (;;) {
      if (stop_.stop_requested()) return killed(Ending::How::cancelled);
      if (const auto ending = reap(WNOHANG)) return *ending;
      if (is_too_large()) return killed(Ending::How::too_large);
      if (Clock::now() >= deadline) return killed(Ending::How::timed_out);
      std::this_thread::sleep_for(kExitPoll);
    }
  }

  // Nullopt if it is still running.
  std::optional<Ending> reap(int flags) {
    int status = 0;
    pid_t found = 0;
    do {
      found = waitpid(pid_, &status, flags);
    } while (found < 0 && errno == EINTR);
    if (found == 0) return std::nullopt;
    Ending ending;
    if (found < 0) return ending;
    ending.how = WIFSIGNALED(status) ? Ending::How::signalled : Ending::How::exited;
    ending.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ending.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return ending;
  }

  Ending killed(Ending::How how) {
    kill(-pid_, SIGKILL);  // the group; the child leads it
    reap(0);
    Ending ending;
    ending.how = how;
    return ending;
  }

  pid_t pid_;
  FileDescriptor output_;
  FileDescriptor errors_;
  std::stop_token stop_;
  std::int64_t most_bytes_;
  int alarm_;
  std::string line_;
  std::string error_text_;
};

}  // namespace

Result<Ending> run_process(const std::vector<std::string>& command, std::string_view input,
                           const ProcessOptions& options, const LineSink& sink) {
  const Clock::time_point deadline = Clock::now() + options.timeout;
  if (command.empty()) return failed("no command").error();
  ATTN_ASSIGN(const FileDescriptor request, make_input(input));
  ATTN_ASSIGN(Pipe output, make_pipe());
  ATTN_ASSIGN(Pipe errors, make_pipe());
  ATTN_ASSIGN(FileDescriptor event, Alarm::make_event());
  const Alarm alarm(std::move(event), options.stop);
  ATTN_ASSIGN(const pid_t pid,
              spawn(command, options, request.get(), output.write.get(), errors.write.get()));
  output.write.close();
  errors.write.close();
  return Child(pid, std::move(output.read), std::move(errors.read), options, alarm.fd())
      .run(deadline, sink);
}

// The signal is sent when the thread that started the child ends, which stays inside run_process
// until the child is dead. It is requested before the check that the caller lives, so that its
// death is noticed either way. The parent may be a script started by the caller, so it is the
// caller that is checked, not the parent.
void end_with_caller() {
  const char* mark = std::getenv(kCallerMark);
  if (mark == nullptr) return;
  long caller = 0, seconds = 0;
  const bool is_read = std::sscanf(mark, "%ld %ld", &caller, &seconds) == 2;
  unsetenv(kCallerMark);  // children of this process are not the caller's
  if (!is_read || caller <= 0 || seconds <= 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(static_cast<unsigned>(std::min(seconds, 1000L * 3600)));
  const auto pid = static_cast<pid_t>(caller);
  if (getppid() != pid && !is_alive(pid)) raise(SIGKILL);
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace attn::worker
