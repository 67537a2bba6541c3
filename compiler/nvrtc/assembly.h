// What the assembler (ptxas) made of kernels, read from NVRTC's log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::nvrtc {

struct AssembledKernel {
  std::string name;
  std::int64_t spilled_bytes = 0;  // of a thread: the sizes of all stores that save registers
};

struct Assembly {
  std::vector<AssembledKernel> kernels;
  // What it says of lost performance: products of warp groups that wait for each other, registers
  // that are not handed over.
  std::vector<std::string> losses;
};

// Reads a log that was made with ptxas -v. Lines that it does not know are skipped.
Assembly read_assembly(std::string_view log);

// What the kernels of an image must not need.
struct KernelLimits {
  std::int64_t spilled_bytes = 0;  // by each kernel, at most
  std::string_view may_spill{};    // the kernel that may spill any number: it takes no time
};

// Errors: unsupported, naming the kernel and what ptxas says, if one spills more, or the log tells
// of lost performance.
Status check_assembly(const Assembly& assembly, const KernelLimits& limits);

// The bytes that the kernel which spills most spills, of those that count.
std::int64_t most_spilled(const Assembly& assembly, const KernelLimits& limits);
// More bytes than all registers of two threads hold: another division of the same work will not
// fit.
inline constexpr std::int64_t kHopelessBytes = 2 * 255 * 4;

}  // namespace attn::nvrtc
