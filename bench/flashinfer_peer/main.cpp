// Times FlashInfer's attention over a paged cache for the cases on the standard input, and compares
// some rows with a reference. Prints a line per case and kernel. Exit status: 0; 1 if a result is
// wrong; 2 if the command line, a case or the device is.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>

#include "bench/flashinfer_peer/batch.h"
#include "bench/flashinfer_peer/case_lines.h"
#include "bench/flashinfer_peer/reference.h"
#include "bench/flashinfer_peer/timing.h"

namespace attn::flashinfer_peer {
namespace {

constexpr const char* kUsage =
    "usage: flashinfer_peer [--kernels NAME,..] [--hnd] [--no-programmatic-launch] [--graph-plan] "
    "[--check-cases] < CASES\n";

struct Arguments {
  std::string kernels;  // with commas between them; empty: all
  Layout layout = Layout::kNhd;
  Options options;
  bool check_cases = false;  // reads them and needs no device
};

Arguments parsed(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--kernels" && i + 1 < count)
      arguments.kernels = words[++i];
    else if (word == "--hnd")
      arguments.layout = Layout::kHnd;
    else if (word == "--no-programmatic-launch")
      arguments.options.programmatic_launch = false;
    else if (word == "--graph-plan")
      arguments.options.graph_plan = true;
    else if (word == "--check-cases")
      arguments.check_cases = true;
    else
      throw Refusal("unknown argument '" + word + "'\n" + kUsage);
  }
  return arguments;
}

std::vector<Kernel> chosen(const std::string& names) {
  const std::vector<Kernel> all = all_kernels();
  if (names.empty()) return all;
  std::vector<Kernel> found;
  std::istringstream items(names);
  for (std::string name; std::getline(items, name, ',');) {
    const std::size_t before = found.size();
    for (const Kernel& kernel : all)
      if (kernel.name == name) found.push_back(kernel);
    if (found.size() == before) throw Refusal("no kernel '" + name + "' was compiled");
  }
  return found;
}

void require_hopper() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    throw Refusal(std::string("no GPU: ") +
                  (error == cudaSuccess ? "none is visible" : cudaGetErrorString(error)));
  cudaDeviceProp device = {};
  check(cudaGetDeviceProperties(&device, 0), "asking for the device's properties");
  if (device.major != 9 || device.minor != 0)
    throw Refusal(std::string(device.name) + ": the kernels are compiled for sm_90a only");
  std::printf("# %s, %d SMs\n", device.name, device.multiProcessorCount);
}

// Prints the line of a case and a kernel; false if the result is wrong.
bool measure(const Kernel& kernel, const Batch& batch, const Reference& reference,
             cudaStream_t stream) {
  const char* const name = batch.facts.name.c_str();
  try {
    poison(batch);
    check(cudaDeviceSynchronize(), "filling the outputs");
    const double planned = plan_microseconds(kernel, batch, stream);
    const Run run = kernel.plan(batch, stream);
    for (int i = 0; i < 2; ++i) run(stream);
    check(cudaStreamSynchronize(stream), "running");
    const Comparison comparison = reference.compare(batch);
    const bool good = comparison.all_finite && comparison.error <= kTolerance;
    std::printf("%-12s %-12s %10.2f %10.1f %10.2e %s\n", name, kernel.name.c_str(),
                run_microseconds(run, stream), planned, comparison.error,
                good                    ? "right"
                : comparison.all_finite ? "WRONG"
                                        : "WRONG: not finite");
    return good;
  } catch (const Refusal& refusal) {
    std::printf("%-12s %-12s refused: %s\n", name, kernel.name.c_str(), refusal.what());
  } catch (const std::exception& error) {
    std::printf("%-12s %-12s failed: %s\n", name, kernel.name.c_str(), error.what());
    static_cast<void>(cudaGetLastError());
    check(cudaDeviceSynchronize(), "after that failure");  // throws if the device is lost
    return false;
  }
  return true;
}

bool measure_all(const Arguments& arguments, const std::vector<Case>& cases) {
  const std::vector<Kernel> kernels = chosen(arguments.kernels);
  require_hopper();
  std::printf("# %-10s %-12s %10s %10s %10s\n", "case", "kernel", "run us", "plan us", "error");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  Workspace workspace;
  bool good = true;
  for (const Case& facts : cases) {
    const Batch batch = make_batch(facts, arguments.layout, arguments.options, workspace);
    check(cudaDeviceSynchronize(), "making a batch");
    const Reference reference(batch);
    for (const Kernel& kernel : kernels) {
      good = measure(kernel, batch, reference, stream) && good;
      std::fflush(stdout);
    }
  }
  check(cudaStreamDestroy(stream), "destroying a stream");
  return good;
}

int run(int count, char** words) {
  const Arguments arguments = parsed(count, words);
  const std::vector<Case> cases = read_cases(std::cin);
  if (cases.empty()) throw Refusal(std::string("no cases on the standard input\n") + kUsage);
  if (arguments.check_cases) {
    std::printf("%zu cases\n", cases.size());
    return 0;
  }
  return measure_all(arguments, cases) ? 0 : 1;
}

}  // namespace

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> kernels = {decode_kernel(), tensor_core_kernel(), prefill_kernel(),
                                 persistent_kernel()};
#ifdef ATTN_FLASHINFER_FA3
  kernels.push_back(hopper_kernel());
#endif
  return kernels;
}

}  // namespace attn::flashinfer_peer

int main(int count, char** words) {
  try {
    return attn::flashinfer_peer::run(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "flashinfer_peer: %s\n", error.what());
    return 2;
  }
}
