#include "tools/serve.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "runtime/base/descriptors.h"

namespace attn::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kNoServer = 2;
constexpr int kBadRequest = 70;

// A command that runs.
struct Running {
  pid_t child = -1;
  FileDescriptor client;
  FileDescriptor output;  // what the child has written, as files without a name
  FileDescriptor errors;
};

// The socket of the next request; empty when the client is gone.
FileDescriptor receive_socket(int from) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received = -1;
  do {
    received = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  const cmsghdr* header = received > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int socket = -1;
  std::copy_n(CMSG_DATA(header), sizeof socket, reinterpret_cast<unsigned char*>(&socket));
  return FileDescriptor(socket);
}

FileDescriptor nameless_file() { return FileDescriptor(memfd_create("attnc-output", MFD_CLOEXEC)); }

std::string contents(const FileDescriptor& file) {
  if (!file.valid() || lseek(file.get(), 0, SEEK_SET) != 0) return "";
  return read_all(file.get()).value_or("");
}

// Makes this process what the request says. False if it cannot be.
bool become(const Json& request) {
  clearenv();
  for (const auto& [name, value] : request.at("environment").items()) {
    setenv(name.c_str(), value.get<std::string>().c_str(), 1);
  }
  const FileDescriptor input = nameless_file();
  if (!write_all(input.get(), request.at("input").get<std::string>()) ||
      lseek(input.get(), 0, SEEK_SET) != 0 || dup2(input.get(), STDIN_FILENO) < 0) {
    std::perror("attnc: the input");
    return false;
  }
  const std::string folder = request.at("folder");
  if (chdir(folder.c_str()) == 0) return true;
  std::perror(("attnc: " + folder).c_str());
  return false;
}

class Server {
 public:
  Server(int control, const CommandLine& run) : control_(control), run_(run) {}

  int serve() {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &children, &before_) != 0) return kNoServer;
    ended_ = FileDescriptor(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!ended_.valid()) return kNoServer;
    signal(SIGPIPE, SIG_IGN);
    while (step()) {
    }
    for (const Running& command : running_) kill(command.child, SIGKILL);
    return 0;
  }

 private:
  // Waits for what happens next. False when the client is gone.
  bool step() {
    std::vector<pollfd> watched = {{control_, POLLIN, 0}, {ended_.get(), POLLIN, 0}};
    for (const Running& command : running_) watched.push_back({command.client.get(), 0, 0});
    if (poll(watched.data(), watched.size(), -1) < 0) return errno == EINTR;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (watched[i + 2].revents != 0) kill(running_[i].child, SIGKILL);
    }
    if (watched[1].revents != 0) reap();
    if (watched[0].revents == 0) return true;
    FileDescriptor client = receive_socket(control_);
    if (!client.valid()) return false;
    start(std::move(client));
    return true;
  }

  void start(FileDescriptor client) {
    Running command{-1, std::move(client), nameless_file(), nameless_file()};
    const pid_t server = getpid();
    command.child = fork();
    if (command.child == 0) _exit(run_child(command, server));
    if (command.child > 0) running_.push_back(std::move(command));
  }

  int run_child(const Running& command, pid_t server) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != server) return kBadRequest;
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    signal(SIGPIPE, SIG_DFL);
    running_.clear();  // their clients would wait for this child
    if (dup2(command.output.get(), STDOUT_FILENO) < 0) return kBadRequest;
    if (dup2(command.errors.get(), STDERR_FILENO) < 0) return kBadRequest;
    const std::optional<std::string> text = read_all(command.client.get());
    std::vector<std::string> words;
    try {
      const Json request = Json::parse(text.value_or(""));
      request.at("arguments").get_to(words);
      if (!become(request)) return kBadRequest;
    } catch (const Json::exception& error) {
      std::fprintf(stderr, "attnc serve: %s\n", error.what());
      return kBadRequest;
    }
    const int code = run_(std::move(words));
    std::fflush(nullptr);
    return code;
  }

  void reap() {
    signalfd_siginfo ignored;
    while (read(ended_.get(), &ignored, sizeof ignored) > 0) {
    }
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto at = std::ranges::find(running_, child, &Running::child);
      if (at == running_.end()) continue;
      answer(*at, status);
      running_.erase(at);
    }
  }

  static void answer(const Running& command, int status) {
    Json json;
    if (WIFSIGNALED(status)) json["signal"] = WTERMSIG(status);
    if (WIFEXITED(status)) json["code"] = WEXITSTATUS(status);
    json["output"] = contents(command.output);
    json["errors"] = contents(command.errors);
    // A client that is gone reads nothing.
    (void)write_all(command.client.get(),
                    json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  const int control_;
  const CommandLine& run_;
  FileDescriptor ended_;  // readable when a child has ended
  sigset_t before_{};     // the signals that were blocked
  std::vector<Running> running_;
};

}  // namespace

int serve_command_lines(int socket, const CommandLine& run) {
  prctl(PR_SET_NAME, "attnc-serve");
  return Server(socket, run).serve();
}

}  // namespace attn::tools
