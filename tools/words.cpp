#include "tools/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "compiler/support/text.h"
#include "runtime/cudnn/library.h"
#include "runtime/graph/operands.h"
#include "runtime/io/host_tensor.h"
#include "runtime/targets/targets.h"
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

// U+202A to U+202E and U+2066 to U+2069.
bool turns_direction(std::string_view point) {
  return (point >= "\u202a" && point <= "\u202e") || (point >= "\u2066" && point <= "\u2069");
}

// `kept` are control characters that are not escaped.
std::string without_controls(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const std::string_view point = text.substr(0, support::code_point_bytes(text));
    text.remove_prefix(point.size());
    const bool stays = support::is_printable(point) && !turns_direction(point);
    if (stays || kept.find(point) != std::string_view::npos) {
      out += point;
      continue;
    }
    for (const char c : point) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  return scaled(static_cast<double>(bytes), {"B", "kB", "MB", "GB", "TB"}, 1);
}

std::string memory_text(const plan::Memory& memory) {
  const std::pair<const char*, std::int64_t> all[] = {
      {"cuDNN", memory.cudnn},
      {"intermediates", memory.between},
      {"materialized once", memory.once + memory.iota}};
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : all) {
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, bytes_text(bytes)));
  }
  const std::string total = bytes_text(memory.total());
  return parts.size() < 2 ? total : fmt::format("{} ({})", total, fmt::join(parts, ", "));
}

std::string cudnn_text(std::int64_t version) {
  return version == 0 ? "none" : cudnn::version_text(version);
}

std::string runs_on_text(std::int64_t sm) {
  const std::vector<std::string> gpus = targets::gpus_of(sm);
  return fmt::format("compute capability {}.{}{}{}", sm / 10, sm % 10, gpus.empty() ? "" : ": ",
                     fmt::join(gpus, ", "));
}

std::string flops_text(double flops) {
  return scaled(flops / 1e3, {"kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"}, 2);
}

std::string percent_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string shown(std::string_view text) { return without_controls(text, ""); }

std::string shown_beginning(std::string_view text) {
  constexpr std::size_t kMost = 72;
  std::string all = shown(text);  // of ASCII alone where it comes from an expression
  return all.size() <= kMost ? all : all.substr(0, kMost - 3) + "...";
}

std::string shown_lines(std::string_view text) { return without_controls(text, "\n\t"); }

std::string knobs_text(const std::vector<plan::Knob>& knobs) {
  std::string text;
  for (const plan::Knob& knob : knobs) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", knob.type, knob.value);
  }
  return text.empty() ? "none" : text;
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  return shown(out);
}

std::string wrapped(std::string_view head, std::string_view text, std::size_t width) {
  std::string all, line(head);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const bool first = line.size() == head.size();
    if (!first && line.size() + 1 + word.size() > width) {
      all += line + "\n";
      line = std::string(head.size(), ' ').append(word);
    } else {
      line.append(first ? "" : " ").append(word);
    }
    at = end + 1;
  }
  return all + line + "\n";
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
  std::string text = "  checked when tensors are bound, if a score depends on it:\n";
  for (const plan::IndexCheck::Fault& fault : program.check->faults) {
    text += fmt::format("    {}: {}\n", shown_beginning(fault.expression), shown(fault.what));
  }
  return text;
}

// One row per internal tensor, in the order of the steps that compute them.
class DerivedTable {
 public:
  explicit DerivedTable(const plan::Program& program) {
    for (const plan::TensorInfo& tensor : program.internals) {
      internals_.emplace(tensor.name, &tensor);
    }
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      std::visit([this, i](const auto& step) { add(step, i); }, program.steps[i]);
    }
  }

  std::string to_text() const { return table_.to_text("  "); }

 private:
  void add(const plan::DeriveStep& step, std::size_t /*number*/) {
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      add(step.outputs[i], step.once ? "at load" : "at every execute", step.expressions[i]);
    }
  }

  void add(const plan::KernelStep& step, std::size_t number) {
    for (const std::string& output : step.outputs) {
      add(output, "at every execute", fmt::format("written by the kernels of step {}", number));
    }
    for (const std::string& zeroed : step.zeroed) {
      add(zeroed, "at every execute", fmt::format("zeroed before step {}", number));
    }
  }

  void add(const plan::CudnnStep& step, std::size_t number) {
    const std::set<graph::Uid> writes = graph::written_by(step.graph);
    for (const plan::Operand& operand : step.operands) {
      const auto* tensor = std::get_if<plan::TensorOperand>(&operand.source);
      if (tensor == nullptr || !writes.contains(operand.uid)) continue;
      add(tensor->name, "at every execute", fmt::format("written by cuDNN in step {}", number));
    }
  }

  void add(const std::string& name, const char* made, const std::string& what) {
    const auto found = internals_.find(name);
    if (found == internals_.end()) return;  // an output of the program
    const plan::TensorInfo* tensor = found->second;
    const std::int64_t bytes =
        io::element_count(tensor->dims) * static_cast<std::int64_t>(size_of(tensor->dtype));
    table_.add({name, std::string(to_string(tensor->dtype)), dims_text(tensor->dims),
                bytes_text(bytes), made, what});
  }

  std::map<std::string, const plan::TensorInfo*> internals_;
  Table table_{{{"name"}, {"dtype"}, {"dims"}, {"bytes", Align::right}, {"computed"}, {"value"}}};
};

}  // namespace

std::string derived_text(const plan::Program& program) {
  if (program.internals.empty()) return "";
  return DerivedTable(program).to_text() + check_text(program);
}

}  // namespace attn::tools
