#include "tools/page/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/words.h"

namespace attn::tools::page {
namespace {

constexpr double kRoofWidth = 560, kRoofHeight = 300;
constexpr double kLeft = 56, kRight = 26, kTop = 16, kBottom = 44;

std::string power_text(int power) {
  return power >= 0 ? fmt::format("{:.0f}", std::pow(10, power))
                    : fmt::format("{:g}", std::pow(10, power));
}

double rate_of(const Workload& work, double milliseconds) {
  return milliseconds > 0 ? work.flops / (milliseconds * 1e-3) / 1e12 : 0;
}

double least_ms(const Workload& work, const target::Gpu& gpu) {
  const double limit = limit_of(work, gpu);
  return limit > 0 ? work.flops / (limit * 1e12) * 1e3 : 0;
}

std::string time_text(double milliseconds) {
  if (milliseconds <= 0) return "";
  return milliseconds < 0.1 ? fmt::format("{:.4f} ms", milliseconds)
                            : fmt::format("{:.3f} ms", milliseconds);
}

// Both axes are logarithmic, of whole decades.
class Chart {
 public:
  Chart(const std::vector<Workload>& all, const target::Gpu& gpu) : gpu_(gpu) {
    const double ridge = gpu.matrix_rate * 1e3 / gpu.bandwidth;
    double low_x = ridge / 30, high_x = ridge * 30, low_y = gpu.matrix_rate / 300;
    for (const Workload& work : all) {
      if (intensity_of(work) <= 0) continue;
      low_x = std::min(low_x, intensity_of(work) / 2);
      high_x = std::max(high_x, intensity_of(work) * 2);
      for (const double time : {work.predicted_ms, work.measured_ms.value_or(0)}) {
        if (time > 0) low_y = std::min(low_y, rate_of(work, time) / 2);
      }
    }
    x_from_ = std::floor(std::log10(low_x)), x_to_ = std::ceil(std::log10(high_x));
    y_from_ = std::max(std::floor(std::log10(low_y)), std::log10(gpu.matrix_rate) - 9);
    y_from_ = std::floor(y_from_), y_to_ = std::ceil(std::log10(gpu.matrix_rate * 1.2));
  }

  double x(double intensity) const {
    const double at = (std::log10(intensity) - x_from_) / (x_to_ - x_from_);
    return kLeft + at * (kRoofWidth - kLeft - kRight);
  }
  double y(double rate) const {
    const double at = (std::log10(rate) - y_from_) / (y_to_ - y_from_);
    return kRoofHeight - kBottom - at * (kRoofHeight - kTop - kBottom);
  }

  Json view(const std::vector<Workload>& all) const {
    Json x_ticks = Json::array(), y_ticks = Json::array(), points = Json::array();
    for (double power = x_from_; power <= x_to_; ++power) {
      x_ticks.push_back(
          {{"x", text(x(std::pow(10, power)))}, {"label", power_text(static_cast<int>(power))}});
    }
    for (double power = y_from_; power <= y_to_; ++power) {
      y_ticks.push_back({{"y", text(y(std::pow(10, power)))},
                         {"base", text(y(std::pow(10, power)) + 4)},
                         {"label", power_text(static_cast<int>(power))}});
    }
    for (const Workload& work : all) add_points(points, work, side_of(work, all));
    return {{"width", kRoofWidth},
            {"height", kRoofHeight},
            {"left", kLeft},
            {"right", kRoofWidth - kRight},
            {"top", kTop},
            {"bottom", kRoofHeight - kBottom},
            {"labels", kRoofHeight - kBottom + 16},
            {"tick_end", kLeft - 8},
            {"roof", roof()},
            {"under", fmt::format("{}V{:.1f}H{:.1f}z", roof(), kRoofHeight - kBottom, x(first()))},
            {"x_ticks", x_ticks},
            {"y_ticks", y_ticks},
            {"points", points}};
  }

 private:
  static std::string text(double number) { return fmt::format("{:.1f}", number); }

  // The intensity where the slope enters the chart.
  double first() const {
    return std::max(std::pow(10, x_from_), std::pow(10, y_from_) * 1e3 / gpu_.bandwidth);
  }

  std::string roof() const {
    const double ridge = gpu_.matrix_rate * 1e3 / gpu_.bandwidth;
    return fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}H{:.1f}", x(first()),
                       y(first() * gpu_.bandwidth / 1e3), x(ridge), y(gpu_.matrix_rate),
                       kRoofWidth - kRight);
  }

  // On which side of its point a name stands: the one with more room, but names of two points are
  // on different sides.
  bool side_of(const Workload& work, const std::vector<Workload>& all) const {
    for (const Workload& other : all) {
      if (&other != &work && intensity_of(other) > 0)
        return intensity_of(work) < intensity_of(other);
    }
    return x(intensity_of(work)) > kRoofWidth * 0.7;
  }

  void add_points(Json& points, const Workload& work, bool at_left) const {
    if (intensity_of(work) <= 0) return;
    if (work.is_assumed || work.predicted_ms <= 0) {
      add_point(points, work, limit_of(work, gpu_), "limit", at_left);
      return;
    }
    add_point(points, work, rate_of(work, work.predicted_ms), "predicted", at_left);
    if (work.measured_ms) {
      add_point(points, work, rate_of(work, *work.measured_ms), "measured", !at_left);
    }
  }

  void add_point(Json& points, const Workload& work, double rate, const char* what,
                 bool at_left) const {
    if (rate <= 0) return;
    const double place = x(intensity_of(work));
    points.push_back({{"x", text(place)},
                      {"y", text(y(std::max(rate, std::pow(10, y_from_))))},
                      {"limit_y", text(y(limit_of(work, gpu_)))},
                      {"text_x", text(place + (at_left ? -9 : 9))},
                      {"text_y", text(y(rate) + 16)},
                      {"anchor", at_left ? "end" : "start"},
                      {"kind", what},
                      {"label", fmt::format("{}, {}", work.name, what)}});
  }

  const target::Gpu& gpu_;
  double x_from_ = 0, x_to_ = 0, y_from_ = 0, y_to_ = 0;  // powers of 10
};

Json row_view(const Workload& work, const target::Gpu& gpu) {
  const char* about = work.is_about ? "about " : "";
  Json row = {{"name", work.name},
              {"work", about + flops_text(work.flops)},
              {"bytes", bytes_text(work.bytes)},
              {"intensity", fmt::format("{:.4g}", intensity_of(work))},
              {"bound", is_memory_bound(work, gpu) ? "memory" : "compute"},
              {"limit", fmt::format("{:.4g} TFLOP/s", limit_of(work, gpu))},
              {"least", time_text(least_ms(work, gpu))},
              {"predicted", time_text(work.predicted_ms)},
              {"measured", nullptr},
              {"rate", nullptr},
              {"share", nullptr}};
  if (work.measured_ms) row["measured"] = time_text(*work.measured_ms);
  if (work.predicted_ms > 0 && !work.is_assumed) {
    const double share = share_of_limit(work, work.predicted_ms, gpu);
    row["rate"] = fmt::format("{:.4g} TFLOP/s", rate_of(work, work.predicted_ms));
    row["share"] = percent_text(share);
  }
  return row;
}

}  // namespace

double intensity_of(const Workload& work) {
  return work.bytes > 0 ? work.flops / static_cast<double>(work.bytes) : 0;
}

double limit_of(const Workload& work, const target::Gpu& gpu) {
  return std::min(gpu.matrix_rate, intensity_of(work) * gpu.bandwidth / 1e3);
}

bool is_memory_bound(const Workload& work, const target::Gpu& gpu) {
  return intensity_of(work) * gpu.bandwidth / 1e3 < gpu.matrix_rate;
}

double share_of_limit(const Workload& work, double milliseconds, const target::Gpu& gpu) {
  const double limit = limit_of(work, gpu);
  return limit > 0 ? rate_of(work, milliseconds) / limit : 0;
}

target::Gpu for_products(target::Gpu gpu, DType dtype) {
  gpu.matrix_rate = gpu.rate(dtype);
  return gpu;
}

Json roofline_view(const std::vector<Workload>& all, const target::Gpu& gpu,
                   const std::string& name, DType dtype) {
  if (all.empty() || std::ranges::all_of(all, [](const Workload& work) { return work.flops <= 0; }))
    return nullptr;
  Json rows = Json::array();
  for (const Workload& work : all) rows.push_back(row_view(work, gpu));
  return {
      {"gpu", name},
      {"matrix_rate", fmt::format("{:.4g} TFLOP/s", gpu.matrix_rate)},
      {"bits", 8 * size_of(dtype)},
      {"bandwidth", fmt::format("{:.4g} GB/s", gpu.bandwidth)},
      {"ridge", fmt::format("{:.3g}", gpu.matrix_rate * 1e3 / gpu.bandwidth)},
      {"source", gpu.source},
      {"scaled", !gpu.measured},
      {"has_measured",
       std::ranges::any_of(all, [](const Workload& work) { return work.measured_ms.has_value(); })},
      {"is_assumed", all.front().is_assumed},
      {"rows", rows},
      {"chart", Chart(all, gpu).view(all)}};
}

}  // namespace attn::tools::page
