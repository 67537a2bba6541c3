// Compiles random specs, without a GPU, and counts the outcomes:
//
//   random_specs COUNT FIRST OUT [--jobs N] [--seconds S] [--sample N] [--target h200]
//                [--engine NAME] [--skeleton mma] [--backward] [--offer] [--only-cudnn]
//                [--kind typed|quantized|kernels]
//
// Compiles specs FIRST .. FIRST + COUNT - 1 with N processes. Writes to OUT: `summary.txt`;
// `outcomes.txt`, one line per spec (number, outcome, reason); `cases/`, the specs that were
// neither served nor refused by a rule; and `random/`, N served specs, preferring those whose
// graphs have a new combination of an operation and operands. Starts no spec after S seconds. The
// exit code is 1 if there is a case, 2 if nothing can be run.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <set>
#include <thread>

#include "compiler/planner/search.h"
#include "runtime/targets/targets.h"
#include "runtime/worker/report.h"
#include "tests/fuzz/kernel_spec.h"
#include "tests/fuzz/quantized_spec.h"
#include "tests/fuzz/trial.h"
#include "tests/fuzz/typed_spec.h"

namespace attn::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::uint64_t count = 0;
  std::uint64_t first = 0;
  std::string out;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  unsigned seconds = 0;
  std::size_t sample = 0;
  std::string target = "h200";
  std::string kind = "typed";
  TrialOptions trial;

  std::string spec(std::uint64_t number) const {
    if (kind == "kernels") return kernel_spec(number, trial.backward);
    return kind == "quantized" ? quantized_spec(number) : typed_spec(number);
  }
};

constexpr unsigned kMostJobs = 256;

// Memory shared by the processes.
struct Shared {
  std::atomic<std::uint64_t> next;
  std::atomic<std::uint64_t> current[kMostJobs];  // the current spec of each process
};

struct Found {
  Outcome outcome;
  std::uint64_t number = 0;
};

std::string lane_file(const Options& options, unsigned lane) {
  return fmt::format("{}/outcomes-{}.txt", options.out, lane);
}

void append(const std::string& path, std::uint64_t number, const Outcome& outcome) {
  std::ofstream(path, std::ios::app)
      << fmt::format("{}\t{}\t{}\n", number, to_string(outcome.ending), outcome.reason);
}

// The main function of one process. Returns its exit code.
int run_lane(const Options& options, unsigned lane, Shared& shared, Clock::time_point end) {
  const Result<Compiler> compiler = Compiler::load(options.trial);
  if (!compiler.ok()) {
    fmt::print(stderr, "random_specs: {}\n", compiler.error().to_text());
    return 2;
  }
  while (Clock::now() < end) {
    const std::uint64_t number = shared.next++;
    if (number >= options.first + options.count) break;
    shared.current[lane] = number;
    append(lane_file(options, lane), number, compiler->compile(options.spec(number)));
  }
  return 0;
}

pid_t start_lane(const Options& options, unsigned lane, Shared& shared, Clock::time_point end) {
  const pid_t child = fork();
  if (child == 0) _exit(run_lane(options, lane, shared, end));
  return child;
}

// Restarts a lane that crashes, with the next spec. Returns false if a lane cannot run at all.
bool run_lanes(const Options& options, Shared& shared) {
  const Clock::time_point end = options.seconds == 0
                                    ? Clock::time_point::max()
                                    : Clock::now() + std::chrono::seconds(options.seconds);
  std::map<pid_t, unsigned> lanes;
  for (unsigned lane = 0; lane < options.jobs; ++lane) {
    lanes[start_lane(options, lane, shared, end)] = lane;
  }
  bool works = true;
  while (!lanes.empty()) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) return false;
    const unsigned lane = lanes.extract(ended).mapped();
    works &= !WIFEXITED(status) || WEXITSTATUS(status) == 0;
    if (!WIFSIGNALED(status)) continue;
    append(lane_file(options, lane), shared.current[lane],
           {Ending::crashed, "the generator: " + worker::signal_name(WTERMSIG(status))});
    lanes[start_lane(options, lane, shared, end)] = lane;
  }
  return works;
}

Ending parse_ending(std::string_view text) {
  for (int i = 0; i < static_cast<int>(Ending::crashed); ++i) {
    if (to_string(static_cast<Ending>(i)) == text) return static_cast<Ending>(i);
  }
  return Ending::crashed;
}

// Merges the files of the lanes into one, sorted by number.
std::vector<Found> collect(const Options& options) {
  std::vector<Found> all;
  for (unsigned lane = 0; lane < options.jobs; ++lane) {
    const std::string path = lane_file(options, lane);
    std::ifstream file(path);
    for (std::string number, ending, reason; std::getline(file, number, '\t') &&
                                             std::getline(file, ending, '\t') &&
                                             std::getline(file, reason);) {
      all.push_back({{parse_ending(ending), reason}, std::stoull(number)});
    }
    std::filesystem::remove(path);
  }
  std::ranges::sort(all, {}, &Found::number);
  for (const Found& found : all) append(options.out + "/outcomes.txt", found.number, found.outcome);
  return all;
}

bool is_case(const Found& found) {
  return found.outcome.ending != Ending::served && found.outcome.ending != Ending::refused_by_rule;
}

void write_spec(const std::string& folder, std::uint64_t number, const std::string& text) {
  std::ofstream(fmt::format("{}/{:06}.attn", folder, number)) << text;
}

// Selects specs with new combinations of operations and operands first, then evenly spaced ones.
std::vector<std::uint64_t> sample_of(const std::vector<std::uint64_t>& served,
                                     const Options& options) {
  const std::size_t wanted = options.sample;
  std::vector<std::uint64_t> sample, others;
  std::set<std::string> seen;
  for (const std::uint64_t number : served) {
    if (sample.size() == wanted) return sample;
    const std::size_t before = seen.size();
    seen.merge(combinations_of(options.spec(number), options.trial.lowering));
    (seen.size() > before ? sample : others).push_back(number);
  }
  const std::size_t more = std::min(wanted - sample.size(), others.size());
  for (std::size_t i = 0; i < more; ++i) sample.push_back(others[i * others.size() / more]);
  return sample;
}

void write_specs(const Options& options, const std::vector<Found>& all) {
  std::vector<std::uint64_t> served;
  for (const Found& found : all) {
    if (found.outcome.ending == Ending::served) served.push_back(found.number);
    if (!is_case(found)) continue;
    write_spec(options.out + "/cases", found.number,
               fmt::format("# {}: {}\n{}", to_string(found.outcome.ending), found.outcome.reason,
                           options.spec(found.number)));
  }
  for (const std::uint64_t number : sample_of(served, options)) {
    write_spec(options.out + "/random", number, options.spec(number));
  }
}

// Counts by outcome and reason, with the number of the first spec of each.
std::string summary(const std::vector<Found>& all, double seconds) {
  std::map<std::pair<Ending, std::string>, std::vector<std::uint64_t>> reasons;
  std::map<Ending, std::size_t> endings;
  for (const Found& found : all) {
    reasons[{found.outcome.ending, found.outcome.reason}].push_back(found.number);
    ++endings[found.outcome.ending];
  }
  std::string text = fmt::format("{} specs in {:.0f} s\n", all.size(), seconds);
  for (const auto& [ending, count] : endings) {
    text += fmt::format("{:7} {}\n", count, to_string(ending));
    for (const auto& [key, numbers] : reasons) {
      if (key.first != ending || key.second.empty()) continue;
      text += fmt::format("{:15} {} (first {})\n", numbers.size(), key.second, numbers.front());
    }
  }
  return text;
}

int run(const Options& options) {
  const Clock::time_point start = Clock::now();
  for (const char* found : {"/cases", "/random", "/outcomes.txt"}) {
    std::filesystem::remove_all(options.out + found);  // from an earlier run
  }
  for (const char* folder : {"/cases", "/random"}) {
    std::filesystem::create_directories(options.out + folder);
  }
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  Shared& shared = *new (memory) Shared{};
  shared.next = options.first;
  if (!run_lanes(options, shared)) return 2;
  const std::vector<Found> all = collect(options);
  write_specs(options, all);
  const std::string text =
      summary(all, std::chrono::duration<double>(Clock::now() - start).count());
  std::ofstream(options.out + "/summary.txt") << text;
  fmt::print("{}", text);
  return std::ranges::any_of(all, is_case) ? 1 : 0;
}

}  // namespace
}  // namespace attn::fuzz

int main(int argc, char** argv) {
  using namespace attn;
  fuzz::Options options;
  CLI::App app("Compiles random specs and counts the outcomes", "random_specs");
  app.add_option("count", options.count, "Number of specs")->required();
  app.add_option("first", options.first, "Number of the first spec")->required();
  app.add_option("out", options.out, "Output folder")->required();
  app.add_option("--jobs", options.jobs, "Processes")->check(CLI::Range(1U, fuzz::kMostJobs));
  app.add_option("--seconds", options.seconds, "Start no spec after this many; 0: no limit");
  app.add_option("--sample", options.sample, "Number of served specs to keep");
  app.add_option("--target", options.target, "GPU to compile for");
  app.add_option("--cudnn", options.trial.cudnn_folder, "Folder of cuDNN's libraries");
  app.add_option("--engine", options.trial.lowering, "Engine whose strategies are used")
      ->check(CLI::IsMember(planner::engine_names()));
  app.add_option(
         "--kind", options.kind,
         "Specs of 16 bits with any expressions, of 8 bits, or of what attnc's kernels have")
      ->check(CLI::IsMember({"typed", "quantized", "kernels"}));
  app.add_option_function<std::string>(
         "--skeleton", [&options](const auto&) { options.trial.rewrites.warp_groups = false; },
         "mma: attnc's kernels that every GPU since compute capability 8.0 runs")
      ->check(CLI::IsMember({"mma"}));
  app.add_flag("--offer", options.trial.only_offer,
               "Only query cuDNN's heuristics, do not compile");
  app.add_flag("--backward", options.trial.backward, "Compile the backward, not the forward");
  app.add_flag("--only-cudnn", options.trial.only_cudnn, "Do not compile attnc's kernels");
  CLI11_PARSE(app, argc, argv);
  const Result<plan::Target> target = targets::find_target(options.target);
  if (!target.ok()) {
    fmt::print(stderr, "random_specs: {}\n", target.error().to_text());
    return 2;
  }
  options.trial.target = *target;
  return fuzz::run(options);
}
