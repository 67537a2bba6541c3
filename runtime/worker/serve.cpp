#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/answers.h"
#include "runtime/base/descriptors.h"
#include "runtime/cudnn/library.h"
#include "runtime/worker/driver_image.h"
#include "runtime/worker/process.h"
#include "runtime/worker/protocol.h"
#include "runtime/worker/worker.h"

namespace attn::worker {
namespace {

constexpr int kExitAnswered = 0;
constexpr int kExitBadRequest = 2;
constexpr int kExitNoClient = 4;

// A crash here is expected and reported by the client: no core file, and no signal handler (such as
// a sanitizer's) that would turn the signal into an exit code. Exits when the client is gone.
void set_process_rules() {
  for (const int fatal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) signal(fatal, SIG_DFL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if it was not started by run_process
  end_with_caller();
}

// cuDNN writes to standard output if its logging is on, so the protocol moves to another
// descriptor, and descriptor 1 is redirected to standard error.
FileDescriptor protect_output(int output_fd) {
  FileDescriptor output(fcntl(output_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (output.valid() && output_fd == STDOUT_FILENO) dup2(STDERR_FILENO, STDOUT_FILENO);
  return output;
}

// Identities of this program and of the library that this function is in, which may be the same.
std::string own_identity() {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&own_identity), &info) != 0;
  return fmt::format("{}, {}", identity_of("/proc/self/exe"),
                     identity_of(found && info.dli_fname != nullptr ? info.dli_fname : ""));
}

// What the answer for a graph depends on (base/answers.h): which libraries answer, and who asks.
std::string question_of(const cudnn::Library& library, const CompileRequest& request,
                        const graph::BackendGraph& graph) {
  return fmt::format("cudnn {} {}\nnvrtc {}\nby {}\n{}\n{}\n{}", library.version(),
                     identity_of(library.path()), identity_of(library.nvrtc_path()), own_identity(),
                     request.only_offer ? "offer" : "compile", request.device_json,
                     graph::to_json(graph));
}

class Server {
 public:
  Server(int output, const KernelCompiler& compiler) : output_(output), compiler_(compiler) {}

  bool say(const Message& message) {
    const Result<std::string> line = to_line(message);
    if (!line.ok()) return say(Message(line.error()));
    return write_all(output_, *line);
  }

  Message answer(const Request& request) {
    return std::visit([this](const auto& what) { return handle(what); }, request);
  }

 private:
  Result<std::shared_ptr<const cudnn::Library>> load(const std::string& folder) {
    say(cudnn::Progress{"load cuDNN", -1});
    ATTN_RETURN_IF_ERROR(load_nodriver());
    return cudnn::Library::load(folder);
  }

  Message handle(const VersionRequest& request) {
    const auto library = load(request.cudnn_folder);
    if (!library.ok()) return library.error();
    return (*library)->version();
  }

  Message handle(const CompileRequest& request) {
    const auto library = load(request.cudnn_folder);
    if (!library.ok()) return library.error();
    std::optional<Compiled> last;
    for (const graph::BackendGraph& graph : request.graphs) {
      if (last) say(Message(*last));
      Result<Compiled> compiled = compile_or_find(**library, request, graph);
      if (!compiled.ok()) return compiled.error();
      last = std::move(*compiled);
    }
    return std::move(*last);
  }

  Result<Compiled> compile_or_find(const cudnn::Library& library, const CompileRequest& request,
                                   const graph::BackendGraph& graph) {
    const Answers answers;
    const std::string question = answers.is_kept() ? question_of(library, request, graph) : "";
    ATTN_ASSIGN(const std::optional<std::string> answer, answers.find(question));
    if (answer) {
      ATTN_ASSIGN(const Message found, message_from_line(*answer));
      if (const auto* compiled = std::get_if<Compiled>(&found)) return *compiled;
    }
    const auto ask = request.only_offer ? cudnn::offer : cudnn::compile;
    ATTN_ASSIGN(plan::CompiledStep step,
                ask(library, graph, request.device_json,
                    [this](const cudnn::Progress& progress) { say(progress); }));
    Compiled compiled{std::move(step), library.version()};
    if (!answers.is_kept()) return compiled;
    ATTN_ASSIGN(const std::string line, to_line(compiled));
    std::ignore = answers.keep(question, line);  // which may fail where a disk is full
    return compiled;
  }

  Message handle(const KernelsRequest& request) {
    if (!compiler_) return Error{ErrorCode::worker, "this worker compiles no kernels", {}, ""};
    std::optional<CompiledKernel> last;
    for (const KernelSource& source : request.kernels) {
      if (last) say(Message(std::move(*last)));
      say(cudnn::Progress{"compile a kernel", -1});
      Result<CompiledKernel> kernel = compiler_(source, request.cudnn_folder);
      if (!kernel.ok()) return kernel.error();
      last = std::move(*kernel);
    }
    return std::move(*last);
  }

  int output_;
  const KernelCompiler& compiler_;
};

}  // namespace

int serve(int input_fd, int output_fd, const KernelCompiler& compiler) {
  set_process_rules();
  const FileDescriptor output = protect_output(output_fd);
  if (!output.valid()) return kExitNoClient;
  Server server(output.get(), compiler);
  const std::optional<std::string> text = read_all(input_fd);
  if (!text) {
    server.say(Error{ErrorCode::worker, errno_text("cannot read the request"), {}, ""});
    return kExitBadRequest;
  }
  const Result<Request> request = request_from_json(*text);
  if (!request.ok()) {
    server.say(request.error());
    return kExitBadRequest;
  }
  return server.say(server.answer(*request)) ? kExitAnswered : kExitNoClient;
}

}  // namespace attn::worker
