// A program that is only a compile worker, like `attnc worker`. Also `sleep`, a child that exits
// with its caller, and `call`, an application that runs one and prints the child's process id.
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string_view>
#include <thread>

#include "compiler/derive/nvrtc.h"
#include "runtime/worker/process.h"
#include "runtime/worker/worker.h"

namespace {

int sleep_long() {
  attn::worker::end_with_caller();
  std::cout << getpid() << std::endl;
  std::this_thread::sleep_for(std::chrono::minutes(5));
  return 0;
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
    return attn::worker::serve(STDIN_FILENO, STDOUT_FILENO, attn::derive::compile_for_client);
  }
  return 64;
}
