// Runs a fuzz target without libFuzzer: `fuzz_NAME ROUNDS SEED` runs ROUNDS mutations of the
// target's seeds, deterministically; `fuzz_NAME FILE...` runs the files. Two more numbers limit the
// CPU seconds and megabytes of one input; exceeding a limit is a failure. An input that ends the
// process is saved as fuzz-failure.bin in the working folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "tests/fuzz/target.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::fuzz {
namespace {

using graph::testing::Random;

// The current input, for the signal handler.
std::string_view g_current;

void keep_input(int signal) {
  const int file = ::open("fuzz-failure.bin", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && ::write(file, g_current.data(), g_current.size()) < 0) ::close(file);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Limits of one input, and the largest costs so far.
struct Costs {
  double seconds = 0;
  long megabytes = 0;
};
std::optional<Costs> g_limits;
Costs g_most;
std::uint64_t g_inputs = 0;

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Resets the peak memory of the process; most_megabytes() returns the peak since then.
void forget_memory() { std::ofstream("/proc/self/clear_refs") << 5; }
long most_megabytes() {
  std::ifstream status("/proc/self/status");
  long kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) kilobytes = std::atol(line.c_str() + 6);
  }
  return kilobytes / 1024;
}

double g_start = 0;

void start_counting() {
  forget_memory();
  g_start = processor_seconds();
}

void run(const std::string& input) {
  g_current = input;
  // A block of exactly this size, so that a sanitizer detects reads beyond it.
  const std::vector<std::uint8_t> copy(input.begin(), input.end());
  start_counting();
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  const Costs costs{processor_seconds() - g_start, most_megabytes()};
  ++g_inputs;
  g_most = {std::max(g_most.seconds, costs.seconds), std::max(g_most.megabytes, costs.megabytes)};
  if (!g_limits) return;
  if (costs.seconds <= g_limits->seconds && costs.megabytes <= g_limits->megabytes) return;
  std::fprintf(stderr, "an input took %.3f s and %ld MB\n", costs.seconds, costs.megabytes);
  require(false);
}

void tell_costs() {
  std::printf("%llu inputs, at most %.3f s and %ld MB for one\n",
              static_cast<unsigned long long>(g_inputs), g_most.seconds, g_most.megabytes);
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

// Replaces a JSON number or string by a word, which keeps most of the document valid.
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
  input_is_made = start_counting;
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL})
    std::signal(signal, keep_input);
  if ((argc == 3 || argc == 5) && std::all_of(argv + 1, argv + argc, is_number)) {
    if (argc == 5) g_limits = {std::strtod(argv[3], nullptr), std::strtol(argv[4], nullptr, 10)};
    run_rounds(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
    tell_costs();
    return 0;
  }
  if (argc > 1) {
    const int failed = run_files(argc - 1, argv + 1);
    tell_costs();
    return failed;
  }
  std::fprintf(stderr, "usage: %s ROUNDS SEED [SECONDS MEGABYTES] | FILE...\n", argv[0]);
  return 2;
}
