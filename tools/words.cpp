#include "tools/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "runtime/io/host_tensor.h"
#include "tools/table.h"

namespace attn::tools {
namespace {

std::string scaled(double value, const std::array<const char*, 5>& units, int digits) {
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, digits, units[unit]);
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  return scaled(static_cast<double>(bytes), {"B", "kB", "MB", "GB", "TB"}, 1);
}

std::string flops_text(double flops) {
  return scaled(flops / 1e3, {"kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"}, 2);
}

std::string percent_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string dims_text(const std::vector<std::int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ","));
}

std::string knobs_text(const std::vector<plan::Knob>& knobs) {
  std::string text;
  for (const plan::Knob& knob : knobs) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", knob.type, knob.value);
  }
  return text.empty() ? "none" : text;
}

std::string tensors_text(const plan::Program& program) {
  Table table({{"name"}, {"role"}, {"dtype"}, {"dims"}, {"strides"}, {"alignment", Align::right}});
  for (const plan::TensorInfo& tensor : program.tensors) {
    table.add({tensor.name, std::string(to_string(tensor.role)),
               std::string(to_string(tensor.dtype)), dims_text(tensor.dims),
               dims_text(tensor.strides), fmt::format("{}", tensor.alignment)});
  }
  for (const plan::ParamInfo& param : program.params) {
    table.add({param.name, "param", std::string(to_string(param.dtype)), "", "", ""});
  }
  return table.to_text("  ");
}

namespace {

std::string check_text(const plan::Program& program) {
  if (!program.check) return "";
  std::string text = "  looked for when tensors are bound, where a score depends on it:\n";
  for (const plan::IndexCheck::Fault& fault : program.check->faults) {
    text += fmt::format("    {}: {}\n", fault.expression, fault.what);
  }
  return text;
}

}  // namespace

std::string derived_text(const plan::Program& program) {
  if (program.internals.empty()) return "";
  Table table({{"name"}, {"dtype"}, {"dims"}, {"bytes", Align::right}, {"made"}, {"is"}});
  for (const plan::DeriveStep* step : plan::steps_of<plan::DeriveStep>(program)) {
    for (std::size_t i = 0; i < step->outputs.size(); ++i) {
      const auto tensor =
          std::ranges::find(program.internals, step->outputs[i], &plan::TensorInfo::name);
      if (tensor == program.internals.end()) continue;  // an output of the program
      const std::int64_t bytes =
          io::element_count(tensor->dims) * static_cast<std::int64_t>(size_of(tensor->dtype));
      table.add({tensor->name, std::string(to_string(tensor->dtype)), dims_text(tensor->dims),
                 bytes_text(bytes), step->once ? "when loaded" : "at every execute",
                 step->expressions[i]});
    }
  }
  return table.to_text("  ") + check_text(program);
}

}  // namespace attn::tools
