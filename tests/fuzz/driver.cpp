// Runs a fuzz target without libFuzzer: `fuzz_NAME ROUNDS SEED` mutates the target's seeds that
// many times, always in the same way; `fuzz_NAME FILE...` runs the files. An input that ends the
// process is left in the working folder as fuzz-failure.bin.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>

#include "tests/fuzz/target.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::fuzz {
namespace {

using graph::testing::Random;

// The input that the target is looking at, for the signal handler.
std::string_view g_current;

void keep_input(int signal) {
  const int file = ::open("fuzz-failure.bin", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && ::write(file, g_current.data(), g_current.size()) < 0) ::close(file);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const std::string& input) {
  g_current = input;
  // A block of exactly this size, so that a sanitizer sees every byte read beyond it.
  const std::vector<std::uint8_t> copy(input.begin(), input.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

void replace(std::string& input, std::size_t at, std::size_t length, std::string_view with) {
  input.replace(at, std::min(length, input.size() - at), with);
}

void mutate(std::string& input, const std::vector<std::string>& pool, Random& random) {
  const std::size_t at = random.below(input.size() + 1);
  const std::size_t length = 1 + random.below(random.chance(4) ? 200 : 8);
  switch (random.below(7)) {
    case 0:
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << random.below(8)));
      break;
    case 2: replace(input, at, 1, std::string(1, static_cast<char>(random.bits()))); break;
    case 3: replace(input, at, length, ""); break;
    case 4: input.insert(at, input.substr(random.below(input.size() + 1), length)); break;
    case 5: replace(input, at, random.chance(2) ? 0 : length, random.pick(words())); break;
    default: {
      const std::string& other = random.pick(pool);
      replace(input, at, length, other.substr(random.below(other.size() + 1), length));
    }
  }
}

// Puts a word where a JSON number or string stands, which keeps most of the document whole.
void replace_value(std::string& input, Random& random) {
  const std::size_t colon = input.find_first_of(":,[", random.below(input.size() + 1));
  if (colon == std::string::npos) return;
  const std::size_t end = input.find_first_of(",]}", colon + 1);
  if (end != std::string::npos) replace(input, colon + 1, end - colon - 1, random.pick(words()));
}

void run_rounds(std::uint64_t rounds, std::uint64_t seed) {
  const std::vector<std::string> pool = seeds();
  for (const std::string& input : pool) run(input);
  Random random(seed);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::string input = random.pick(pool);
    for (std::size_t i = 1 + random.below(random.chance(3) ? 8 : 1); i > 0; --i) {
      if (random.chance(2))
        replace_value(input, random);
      else
        mutate(input, pool, random);
    }
    run(input);
  }
}

int run_files(int count, char** paths) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(paths[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot open %s\n", paths[i]);
      return 1;
    }
    run(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return 0;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace
}  // namespace attn::fuzz

int main(int argc, char** argv) {
  using namespace attn::fuzz;
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL})
    std::signal(signal, keep_input);
  if (argc == 3 && is_number(argv[1]) && is_number(argv[2])) {
    run_rounds(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
    return 0;
  }
  if (argc > 1) return run_files(argc - 1, argv + 1);
  std::fprintf(stderr, "usage: %s ROUNDS SEED | FILE...\n", argv[0]);
  return 2;
}
