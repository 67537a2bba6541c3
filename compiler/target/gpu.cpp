#include "compiler/target/gpu.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "runtime/plan/device_properties.h"

namespace attn::target {
namespace {

struct DataSheet {
  std::string_view target, device;
  double multiprocessors, matrix_rate, rate_in_8_bits, bandwidth;
  bool measured;
  std::string_view source;
};
constexpr DataSheet kDataSheets[] = {
#define ATTN_DATA_SHEET(target, device, multiprocessors, matrix_rate, rate_in_8_bits, bandwidth, \
                        measured, source)                                                        \
  {#target, device, multiprocessors, matrix_rate, rate_in_8_bits, bandwidth, measured, source},
#include "compiler/target/data_sheets.def"
};

struct Architecture {
  std::int64_t sm;
  double flop_per_clock, flop_per_clock_in_8_bits, lanes, share_of_warps;
};
constexpr Architecture kArchitectures[] = {
#define ATTN_ARCHITECTURE(sm, flop_per_clock, flop_per_clock_in_8_bits, lanes, share_of_warps) \
  {sm, flop_per_clock, flop_per_clock_in_8_bits, lanes, share_of_warps},
#include "compiler/target/architectures.def"
};

const Architecture& architecture_of(std::int64_t sm) {
  const auto* above = std::ranges::upper_bound(kArchitectures, sm, {}, &Architecture::sm);
  return above == std::begin(kArchitectures) ? *above : *std::prev(above);
}

// Whether the device's name has these words: "L4" is no part of "L40".
bool is_named(std::string_view device, std::string_view words) {
  const std::size_t at = device.find(words);
  if (at == std::string_view::npos) return false;
  const std::string_view behind = device.substr(at + words.size());
  return behind.empty() || std::isalnum(static_cast<unsigned char>(behind.front())) == 0;
}

const DataSheet* data_sheet_of(std::string_view target, std::string_view device) {
  const auto* found = std::ranges::find(kDataSheets, target, &DataSheet::target);
  if (found == std::end(kDataSheets)) {
    found = std::ranges::find_if(
        kDataSheets, [device](const DataSheet& sheet) { return is_named(device, sheet.device); });
  }
  return found == std::end(kDataSheets) ? nullptr : found;
}

void take_figures(Gpu& gpu, const DataSheet& sheet) {
  const double share = gpu.multiprocessors / sheet.multiprocessors;
  gpu.matrix_rate = sheet.matrix_rate * share;
  gpu.rate_in_8_bits = sheet.rate_in_8_bits * share;
  gpu.bandwidth = sheet.bandwidth;
  gpu.measured = sheet.measured && gpu.multiprocessors == sheet.multiprocessors;
  gpu.source = sheet.source;
}

}  // namespace

Gpu gpu_of(const plan::Target& target) {
  const plan::DeviceProperties properties(target.device_json);
  if (properties.empty()) return {};
  const auto number = [&properties](const char* name, double otherwise) {
    const double value = properties.number(name);
    return value > 0 ? value : otherwise;
  };
  Gpu gpu;
  const Architecture& architecture = architecture_of(target.sm);
  gpu.sm = target.sm;
  gpu.multiprocessors = number("multiProcessorCount", gpu.multiprocessors);
  gpu.clock = number("smClockRateKHz", gpu.clock * 1e6) * 1e-6;
  gpu.lanes = architecture.lanes;
  gpu.share_of_warps = architecture.share_of_warps;
  const double clocks = gpu.multiprocessors * gpu.clock * 1e-3;
  gpu.matrix_rate = architecture.flop_per_clock * clocks;
  gpu.rate_in_8_bits = architecture.flop_per_clock_in_8_bits * clocks;
  // Two transfers a clock, of so many bits.
  gpu.bandwidth =
      number("memClockRateKHz", 3201000) * 1e3 * 2 * number("memoryBusWidth", 6016) / 8 * 1e-9;
  gpu.measured = false;
  gpu.source = "device properties";
  if (const DataSheet* sheet = data_sheet_of(target.name, properties.text("deviceName"))) {
    take_figures(gpu, *sheet);
  }
  return gpu;
}

}  // namespace attn::target
