#include "tools/work.h"

#include <algorithm>
#include <iterator>

#include "compiler/ir/branches.h"
#include "runtime/base/check.h"
#include "runtime/plan/device_properties.h"

namespace attn::tools {

namespace {

using ir::Dim;

double scores_of(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  return static_cast<double>(d[Dim::B] * d[Dim::Hq]) * static_cast<double>(d[Dim::Sq]) *
         static_cast<double>(attention.keys_of_row());
}

// FLOPs of one score, without branches.
double flops_of_score(const ir::Attention& attention, plan::Direction direction) {
  const ir::Dims& d = attention.dims;
  const std::int64_t width = direction == plan::Direction::forward
                                 ? d[Dim::Dqk] + d[Dim::Dv]
                                 : 3 * d[Dim::Dqk] + 2 * d[Dim::Dv];
  return 2.0 * static_cast<double>(width);
}

// FLOPs per SM and clock, from the vendor's white papers: 16-bit factors, dense.
struct Rate {
  std::int64_t first_sm, last_sm;
  double flops;
};
constexpr Rate kRates[] = {
    {80, 80, 2048}, {86, 89, 1024}, {90, 90, 4096}, {100, 103, 8192}, {120, 121, 1024}};

}  // namespace

double own_flops(const ir::Attention& attention, plan::Direction direction) {
  return scores_of(attention) * flops_of_score(attention, direction);
}

double dense_flops(const ir::Attention& attention, plan::Direction direction) {
  double flops = 0;
  for (const ir::Attention* each : ir::attentions_of(attention)) {
    flops += own_flops(*each, direction);
  }
  return flops;
}

double shown_flops(const ir::Attention& attention, const std::vector<reference::Shown>& shown,
                   plan::Direction direction) {
  const std::vector<const ir::Attention*> all = ir::attentions_of(attention);
  ATTN_CHECK(shown.size() == all.size(), "scores are counted of each attention");
  double flops = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    flops += shown[i].scores * flops_of_score(*all[i], direction);
  }
  return flops;
}

DType type_of_products(const plan::Program& program, DType dtype) {
  for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
    if (!step->facts) continue;
    const auto launch = static_cast<std::size_t>(step->facts->launch);
    for (const plan::KernelArgument& argument : step->launches[launch].arguments) {
      const auto* map = std::get_if<plan::TensorMapArgument>(&argument);
      if (map == nullptr) continue;
      for (const auto* tensors : {&program.tensors, &program.internals}) {
        const auto found = std::ranges::find(*tensors, map->tensor.name, &plan::TensorInfo::name);
        if (found != tensors->end()) return found->dtype;
      }
    }
    if (is_fp8(dtype)) return DType::f16;  // kernels without maps widen rows as they copy
  }
  return dtype;
}

std::optional<double> peak_flops(const plan::Target& target, DType dtype) {
  const auto* rate = std::ranges::find_if(kRates, [&](const Rate& each) {
    return each.first_sm <= target.sm && target.sm <= each.last_sm;
  });
  const plan::DeviceProperties device(target.device_json);
  if (rate == std::end(kRates)) return std::nullopt;
  const double count = device.number("multiProcessorCount");
  const double clock = device.number("smClockRateKHz") * 1e3;
  if (count <= 0 || clock <= 0) return std::nullopt;
  constexpr double kFasterIn8Bits = 2;  // on all that have them: 9.0 and later
  return count * clock * rate->flops * (is_fp8(dtype) ? kFasterIn8Bits : 1);
}

std::optional<double> possible_flops(double flops, double milliseconds, const plan::Target& target,
                                     DType dtype) {
  const std::optional<double> peak = peak_flops(target, dtype);
  if (peak && flops / (milliseconds * 1e-3) > *peak) return std::nullopt;
  return flops;
}

}  // namespace attn::tools
