// A program whose whole purpose is to be a compile worker: what `attnc worker` is in the product.
#include <unistd.h>

#include <string_view>

#include "runtime/worker/worker.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "worker") {
    return attn::worker::serve(STDIN_FILENO, STDOUT_FILENO);
  }
  return 64;
}
