// What the assembler makes of each tile of attnc's kernels of warps, as a table in Markdown:
//
//   tile_resources [SM ...]
//
// Compiles the forward and the backward of `causal` with each tile that the engine has for the head
// dimensions 64, 128, 192/128 and 256, for compute capabilities 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0
// (80, 86, ..), and prints registers of a thread, KiB of shared memory, and stages. Needs NVRTC, no
// GPU, and some minutes. docs/engine.md has the table.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/driver.h"
#include "compiler/engines/native/native.h"
#include "compiler/nvrtc/assembly.h"
#include "compiler/nvrtc/nvrtc.h"
#include "tools/cubin.h"

namespace attn {
namespace {

constexpr std::pair<int, int> kDepths[] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};

// A tile, as rows of the table are ordered. The numbers of stages differ from GPU to GPU.
struct TileName {
  plan::Direction direction = plan::Direction::forward;
  std::pair<int, int> depths{};
  std::size_t place = 0;  // among those of these head dimensions
  std::string text{};

  auto operator<=>(const TileName& other) const = default;
};

// The cells of a tile, by capability.
using Row = std::map<std::int64_t, std::string>;

class Table {
 public:
  explicit Table(std::vector<std::int64_t> capabilities) : capabilities_(std::move(capabilities)) {}

  Status add(std::int64_t sm, plan::Direction direction, std::pair<int, int> depths) {
    const std::string text = fmt::format(
        "attention causal {{ dims B = 4, Hq = 16, Hkv = 16, Sq = 4096, Dqk = {}, Dv = {}; mask "
        "q_idx >= kv_idx; outputs o, lse; grad q, k, v; }}",
        depths.first, depths.second);
    const support::Source source("causal.attn", text);
    diag::Sink sink(source);
    const auto attention = driver::front_end(source, {}, sink);
    if (!attention) return {ErrorCode::invalid_spec, diag::to_text(sink)};
    target::Context context;
    context.direction = direction;
    context.gpu.sm = sm;
    context.rewrites.warp_groups = false;
    const ir::Attention trained = driver::training_forward(*attention);
    engines::Subject subject(trained, context);
    for (std::size_t refused = 0;; ++refused) {
      const auto program = engines::native_programs(subject).make(refused);
      if (!program.ok()) return refused > 0 ? Status() : program.status();
      ATTN_RETURN_IF_ERROR(add(sm, {direction, depths}, program->program));
    }
  }

  std::string to_markdown() const;

 private:
  static std::string cell(const Row& row, std::int64_t sm) {
    const auto found = row.find(sm);
    return found == row.end() ? "-" : found->second;
  }
  std::map<std::int64_t, std::string> columns() const;

  Status add(std::int64_t sm, TileName name, const plan::Program& program) {
    const auto* step = plan::steps_of<plan::KernelStep>(program).front();
    const plan::KernelFacts& facts = *step->facts;
    const plan::Launch& launch = step->launches[static_cast<std::size_t>(facts.launch)];
    std::string log;
    ATTN_ASSIGN(const std::string cubin,
                nvrtc::compile_kernel(step->source, sm, "", nvrtc::KernelKind::general, &log));
    const std::int64_t warps = launch.block[0] / 32;
    name.text = fmt::format("{} x {}, {} warps", facts.tile, facts.block, warps);
    name.place = place_of(name);
    std::int64_t spilled = 0;
    for (const nvrtc::AssembledKernel& kernel : nvrtc::read_assembly(log).kernels)
      if (kernel.name == launch.kernel) spilled = kernel.spilled_bytes;
    std::string& cell = rows_[name][sm];
    if (!cell.empty()) cell += "; ";
    cell += fmt::format("{}, {:.0f}, {}", tools::resources_of(cubin)[launch.kernel].registers,
                        static_cast<double>(launch.shared_bytes) / 1024, facts.stages);
    if (spilled > 0) cell += fmt::format(" (spills {})", spilled);
    std::fprintf(stderr, "sm_%lld %s\n", static_cast<long long>(sm), name.text.c_str());
    return {};
  }

  // The place of a tile of this text, or the next one.
  std::size_t place_of(const TileName& name) const {
    std::size_t next = 0;
    for (const auto& [known, cells] : rows_) {
      if (known.direction != name.direction || known.depths != name.depths) continue;
      if (known.text == name.text) return known.place;
      ++next;
    }
    return next;
  }

  std::vector<std::int64_t> capabilities_;
  std::map<TileName, Row> rows_;
};

// Capabilities that agree on all tiles, by the first of each.
std::map<std::int64_t, std::string> Table::columns() const {
  std::map<std::int64_t, std::string> titles;
  for (const std::int64_t sm : capabilities_) {
    const auto agrees = [&](const auto& column) {
      return std::ranges::all_of(rows_, [&](const auto& row) {
        return cell(row.second, column.first) == cell(row.second, sm);
      });
    };
    const std::string name = fmt::format("{}.{}", sm / 10, sm % 10);
    const auto found = std::ranges::find_if(titles, agrees);
    if (found == titles.end()) {
      titles[sm] = name;
    } else {
      found->second += ", " + name;
    }
  }
  return titles;
}

std::string Table::to_markdown() const {
  const std::map<std::int64_t, std::string> columns = this->columns();
  std::string text = "| | |", line = "|---|---|";
  for (const auto& [sm, title] : columns) {
    text += fmt::format(" {} |", title);
    line += "---|";
  }
  text += '\n' + line + '\n';
  for (const auto& [name, cells] : rows_) {
    const auto [qk, v] = name.depths;
    text += fmt::format("| {} D {} | {} |", plan::to_string(name.direction),
                        qk == v ? fmt::format("{}", qk) : fmt::format("{}/{}", qk, v), name.text);
    for (const auto& [sm, title] : columns) text += fmt::format(" {} |", cell(cells, sm));
    text += '\n';
  }
  return text;
}

int run(std::vector<std::int64_t> capabilities) {
  if (capabilities.empty()) capabilities = {80, 86, 89, 90, 100, 120};
  Table table(capabilities);
  for (const std::int64_t sm : capabilities) {
    for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
      for (const auto& depths : kDepths) {
        const Status status = table.add(sm, direction, depths);
        if (status.ok()) continue;
        fmt::print(stderr, "tile_resources: {}\n", status.error().to_text());
        return 1;
      }
    }
  }
  fmt::print("{}", table.to_markdown());
  return 0;
}

}  // namespace
}  // namespace attn

int main(int argc, char** argv) {
  std::vector<std::int64_t> capabilities;
  for (int i = 1; i < argc; ++i) capabilities.push_back(std::stoll(argv[i]));
  return attn::run(std::move(capabilities));
}
