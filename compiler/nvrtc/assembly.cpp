#include "compiler/nvrtc/assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace attn::nvrtc {
namespace {

// What follows `word` in the line.
std::optional<std::string_view> after(std::string_view line, std::string_view word) {
  const std::size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + word.size());
}

// The number that ends where `word` begins.
std::optional<std::int64_t> number_before(std::string_view line, std::string_view word) {
  const std::size_t end = line.find(word);
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  const std::size_t begin = line.find_last_not_of("0123456789", end - 1) + 1;
  std::int64_t number = 0;
  const auto read = std::from_chars(line.data() + begin, line.data() + end, number);
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

void read_line(std::string_view line, Assembly& assembly) {
  if (const auto loss = after(line, "Potential Performance Loss: ")) {
    assembly.losses.emplace_back(*loss);
  } else if (const auto name = after(line, "Function properties for ")) {
    assembly.kernels.push_back({std::string(*name)});
  } else if (assembly.kernels.empty()) {
    return;
  } else if (const auto bytes = number_before(line, " bytes spill stores")) {
    assembly.kernels.back().spilled_bytes = *bytes;
  }
}

}  // namespace

Assembly read_assembly(std::string_view log) {
  Assembly assembly;
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    read_line(log.substr(0, end), assembly);
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
  }
  return assembly;
}

Status check_assembly(const Assembly& assembly, const KernelLimits& limits) {
  if (!assembly.losses.empty()) {
    return {ErrorCode::unsupported,
            fmt::format("the assembler made a slow kernel: {}", assembly.losses.front())};
  }
  for (const AssembledKernel& kernel : assembly.kernels) {
    if (kernel.spilled_bytes <= limits.spilled_bytes || kernel.name == limits.may_spill) continue;
    return {ErrorCode::unsupported,
            fmt::format("the kernel {} needs more registers than there are: {} bytes of a thread "
                        "are spilled to memory",
                        kernel.name, kernel.spilled_bytes)};
  }
  return {};
}

std::int64_t most_spilled(const Assembly& assembly, const KernelLimits& limits) {
  std::int64_t most = 0;
  for (const AssembledKernel& kernel : assembly.kernels) {
    if (kernel.name != limits.may_spill) most = std::max(most, kernel.spilled_bytes);
  }
  return most;
}

}  // namespace attn::nvrtc
