// write_includes FILE [gpu]: writes the beginning of every file of kernels (host_includes), which
// is compiled once.
#include <fstream>

#include "tests/support/host_kernels.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::ofstream file(argv[1]);
  file << attn::testing::host_includes(argc > 2);
  return file.flush() ? 0 : 1;
}
