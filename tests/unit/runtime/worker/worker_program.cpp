// A program that is only a compile worker, like `attnc worker`. Also `sleep`, a child that exits
// with its caller; `spilling BYTES`, a worker that does not compile kernels, but says that they
// spill so many; and `call`, an application that runs one and prints the child's process id.
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "compiler/nvrtc/nvrtc.h"
#include "runtime/worker/process.h"
#include "runtime/worker/worker.h"

namespace {

int sleep_long() {
  attn::worker::end_with_caller();
  std::cout << getpid() << std::endl;
  std::this_thread::sleep_for(std::chrono::minutes(5));
  return 0;
}

int serve_spilling(const std::string& bytes) {
  const std::string log =
      "ptxas info : Function properties for attn_forward\nptxas . 0 bytes stack frame, " + bytes +
      " bytes spill stores, 0 bytes spill loads\n";
  const auto compile = [&log](const attn::worker::KernelSource&,
                              const std::string&) -> attn::Result<attn::worker::CompiledKernel> {
    return attn::worker::CompiledKernel{"image", log};
  };
  return attn::worker::serve(STDIN_FILENO, STDOUT_FILENO, compile);
}

int call(const char* program) {
  const auto print = [](std::string_view line) {
    std::cout << line << std::endl;
    return false;
  };
  return attn::worker::run_process({program, "sleep"}, "", {std::chrono::minutes(5)}, print).ok()
             ? 0
             : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "sleep") return sleep_long();
  if (argc == 2 && std::string_view(argv[1]) == "call") return call(argv[0]);
  if (argc == 2 && std::string_view(argv[1]) == "worker") {
    return attn::worker::serve(STDIN_FILENO, STDOUT_FILENO, attn::nvrtc::compile_for_client);
  }
  if (argc == 3 && std::string_view(argv[1]) == "spilling") return serve_spilling(argv[2]);
  return 64;
}
