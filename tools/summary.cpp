#include "tools/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

constexpr std::size_t kShown = 4;

struct Summary {
  double mean = 0;
  double max_abs = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
};

Summary summarize(const std::vector<double>& values) {
  Summary summary;
  std::int64_t finite = 0;
  for (const double value : values) {
    if (std::isnan(value)) {
      ++summary.nan;
    } else if (std::isinf(value)) {
      ++summary.infinite;
    } else {
      ++finite;
      summary.mean += value;
      summary.max_abs = std::max(summary.max_abs, std::abs(value));
    }
  }
  if (finite == 0) summary.mean = summary.max_abs = std::numeric_limits<double>::quiet_NaN();
  if (finite > 0) summary.mean /= static_cast<double>(finite);
  return summary;
}

// The first values; a NaN has no sign, which would be printed.
std::vector<double> first(const std::vector<double>& values) {
  std::vector<double> few(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(
                                                               std::min(kShown, values.size())));
  for (double& value : few) {
    if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  }
  return few;
}

}  // namespace

std::string summary_text(const Outputs& outputs) {
  Table table({{"output"},
               {"dtype"},
               {"dims"},
               {"mean", Align::right},
               {"max abs", Align::right},
               {"NaN", Align::right},
               {"inf", Align::right},
               {"first values"}});
  for (const auto& [name, tensor] : outputs) {
    const Summary summary = summarize(tensor.values);
    table.add({name, std::string(to_string(tensor.dtype)), dims_text(tensor.dims),
               fmt::format("{:.4g}", summary.mean), fmt::format("{:.4g}", summary.max_abs),
               fmt::format("{}", summary.nan), fmt::format("{}", summary.infinite),
               fmt::format("{:.5g}", fmt::join(first(tensor.values), " "))});
  }
  return table.to_text();
}

Json summary_json(const Outputs& outputs) {
  Json json = Json::object();
  for (const auto& [name, tensor] : outputs) {
    const Summary summary = summarize(tensor.values);
    json[name] = {
        {"dtype", to_string(tensor.dtype)}, {"dims", tensor.dims}, {"mean", summary.mean},
        {"max_abs", summary.max_abs},       {"nan", summary.nan},  {"inf", summary.infinite},
        {"first", first(tensor.values)}};
  }
  return json;
}

}  // namespace attn::tools
