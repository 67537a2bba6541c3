#include "tools/explained_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/engines.h"
#include "runtime/plan/plan.h"
#include "tools/console.h"
#include "tools/cubin.h"
#include "tools/report.h"
#include "tools/strategies.h"
#include "tools/table.h"
#include "tools/words.h"
#include "tools/work.h"

namespace attn::tools {
namespace {

using plan::BlockCounts;
using plan::KernelFacts;

struct ExplainedLaunch {
  plan::Launch launch;
  std::string what;                            // empty if this attnc does not know the kernel
  std::optional<KernelResources> resources{};  // as the plan's cubin says
};

// The launches of a kernel step.
struct ExplainedKernels {
  std::size_t step = 0;
  std::vector<ExplainedLaunch> launches;
  std::optional<plan::KernelFacts> facts{};  // of its attention kernel
};

std::string extents_text(const plan::Extents& extents) {
  std::string text = fmt::format("{}", extents[0]);
  if (extents[1] != 1 || extents[2] != 1) text += fmt::format(" x {}", extents[1]);
  if (extents[2] != 1) text += fmt::format(" x {}", extents[2]);
  return text;
}

std::string launches_text(const std::vector<ExplainedLaunch>& launches) {
  const bool spills = std::ranges::any_of(launches, [](const ExplainedLaunch& each) {
    return each.resources && each.resources->stack_bytes > 0;
  });
  std::vector<Table::Column> columns = {{"kernel"},
                                        {"blocks", Align::right},
                                        {"threads", Align::right},
                                        {"shared memory", Align::right},
                                        {"registers", Align::right}};
  if (spills) columns.push_back({"stack", Align::right});
  columns.push_back({"what it does"});
  Table table(std::move(columns));
  for (const auto& [launch, what, resources] : launches) {
    std::vector<Table::Cell> cells = {launch.kernel, extents_text(launch.grid),
                                      extents_text(launch.block), bytes_text(launch.shared_bytes)};
    cells.emplace_back(resources ? fmt::format("{}", resources->registers) : "-");
    if (spills) cells.emplace_back(resources ? bytes_text(resources->stack_bytes) : "-");
    cells.emplace_back(what);
    table.add(std::move(cells));
  }
  return table.to_text("    ");
}

std::string tile_text(const KernelFacts& facts) {
  const char* const of_tile = facts.backward ? "keys" : "queries";
  std::string text = fmt::format("{} {}", facts.tile, of_tile);
  if (facts.patch_width > 0) {
    text += fmt::format(", {} x {} of the grid", facts.patch_width, facts.patch_height);
  }
  if (facts.heads > 1) text += fmt::format(" of each of {} heads that share keys", facts.heads);
  text += fmt::format(", by blocks of {} {}", facts.block, facts.backward ? "queries" : "keys");
  constexpr std::int64_t kRowsOfProducts = 64;
  const std::int64_t used = facts.tile * facts.heads;
  if (!facts.backward && facts.patch_width == 0 && used < kRowsOfProducts)
    text += fmt::format(", {} of the {} rows of products", used, kRowsOfProducts);
  text += fmt::format("; q and k in {} columns, v in {}", facts.depth, facts.width);
  return text;
}

// Kernels of warps have no warp group that copies.
bool is_of_warps(const KernelFacts& facts, const plan::Launch& launch) {
  return launch.block[0] <= 128 * facts.groups;
}

std::string items_text(const KernelFacts& facts, const plan::Launch& launch) {
  if (facts.has_schedule) {
    return fmt::format(
        "at most {} of all batches and heads, divided among {} blocks of threads by their lengths",
        facts.items, launch.grid[0]);
  }
  std::string text = fmt::format("{} of all batches and heads", facts.items / facts.parts);
  if (facts.parts > 1) text += fmt::format(", the keys of each in {} parts", facts.parts);
  if (facts.divided > 0) {
    text += fmt::format(", of which long ones are divided into {}{} parts in all",
                        facts.makes_lists ? "at most " : "", facts.divided);
  }
  const bool alone = facts.parts == 1 || is_of_warps(facts, launch);
  if (!facts.backward && alone && launch.grid[0] == facts.items)
    return text + ", each of a block of threads";
  return text + fmt::format(", taken in turns by {} blocks of threads", launch.grid[0]);
}

std::string stages_text(const KernelFacts& facts) {
  if (facts.backward) {
    return fmt::format("{} of the rows of q and do{}", facts.stages,
                       facts.table_stages > 0 ? " and the captured table" : "");
  }
  std::string text =
      fmt::format("{} of keys and values, {} of queries", facts.stages, facts.query_stages);
  if (facts.table_stages > 0) text += fmt::format(", {} of the captured table", facts.table_stages);
  return text;
}

std::string warps_text(const KernelFacts& facts, const plan::Launch& launch) {
  if (is_of_warps(facts, launch)) {
    const std::int64_t warps = launch.block[0] / 32;
    if (facts.backward) return fmt::format("{} copy and compute, 16 keys each", warps);
    return fmt::format("{} copy and compute, {} rows each", warps, 64 * facts.groups / warps);
  }
  return fmt::format("{} warp group{} of 4 warps compute{}, one more copies by TMA{}", facts.groups,
                     facts.groups == 1 ? "" : "s", facts.groups == 1 ? "s" : "",
                     facts.gathers ? ", and keys or values row by row" : "");
}

std::string share_text(const BlockCounts& counts, std::int64_t count) {
  const double share = static_cast<double>(count) / static_cast<double>(counts.all());
  return fmt::format("{} ({})", count, percent_text(share));
}

// What the counted lists are of: masks may tell batches and heads apart.
std::string of_lists_text(const KernelFacts& facts) {
  if (!facts.lists_of_batch && !facts.lists_of_head) return "of each head";
  const char* what = !facts.lists_of_head   ? "batches"
                     : facts.lists_of_batch ? "pairs of batch and head"
                                            : "heads";
  return fmt::format("of {} {} that masks tell apart", facts.blocks->lists, what);
}

std::string blocks_text(const KernelFacts& facts) {
  if (facts.has_band) return "first and last of each tile computed, since masks are a band";
  if (facts.makes_lists) return "listed at every execute, since masks depend on inputs";
  if (!facts.blocks) return "not known";
  const BlockCounts& counts = *facts.blocks;
  if (counts.all() == 0) return "none";
  return fmt::format("{}: {} full, {} partial, {} skipped{}", of_lists_text(facts),
                     share_text(counts, counts.full), share_text(counts, counts.partial),
                     share_text(counts, counts.skipped),
                     facts.has_lengths ? "; lengths skip more" : "");
}

std::string facts_text(const KernelFacts& facts, const plan::Launch& launch) {
  return fmt::format(
      "    {}\n      tile    {}\n      tiles   {}\n      stages  {}\n      warps   {}\n"
      "      blocks  {}\n",
      launch.kernel, tile_text(facts), items_text(facts, launch), stages_text(facts),
      warps_text(facts, launch), blocks_text(facts));
}

Json facts_json(const KernelFacts& facts) {
  Json json = {{"tile", facts.tile},
               {"block", facts.block},
               {"heads", facts.heads},
               {"depth", facts.depth},
               {"width", facts.width},
               {"warp_groups", facts.groups},
               {"stages", facts.stages},
               {"table_stages", facts.table_stages},
               {"parts", facts.parts},
               {"tiles", facts.items / facts.parts},
               {"schedule", facts.has_schedule}};
  if (facts.backward) json["divided_parts"] = facts.divided;
  if (!facts.backward) json["query_stages"] = facts.query_stages;
  if (facts.patch_width > 0) json["patch"] = {facts.patch_width, facts.patch_height};
  json["blocks"] = nullptr;
  if (facts.blocks) {
    json["blocks"] = {{"lists", facts.blocks->lists},
                      {"full", facts.blocks->full},
                      {"partial", facts.blocks->partial},
                      {"skipped", facts.blocks->skipped}};
  }
  return json;
}

// Explains the kernels of each kernel step of the plan.
std::vector<ExplainedKernels> explain_kernels(const plan::Plan& plan) {
  std::vector<ExplainedKernels> all;
  auto image = plan.kernels.begin();
  for (std::size_t i = 0; i < plan.program.steps.size(); ++i) {
    const plan::Step& step = plan.program.steps[i];
    if (std::holds_alternative<plan::CudnnStep>(step)) continue;
    const std::string* const cubin = image == plan.kernels.end() ? nullptr : &*image++;
    const auto* kernels = std::get_if<plan::KernelStep>(&step);
    if (kernels == nullptr) continue;
    const auto resources =
        cubin == nullptr ? std::map<std::string, KernelResources>() : resources_of(*cubin);
    ExplainedKernels explained{.step = i, .launches = {}};
    for (const plan::Launch& launch : kernels->launches) {
      ExplainedLaunch each{launch, engines::what_of_launch(*kernels, launch)};
      const auto found = resources.find(launch.kernel);
      if (found != resources.end()) each.resources = found->second;
      explained.launches.push_back(std::move(each));
    }
    explained.facts = kernels->facts;
    all.push_back(std::move(explained));
  }
  return all;
}

// A table of the launches, and lines on the attention kernel; indented below a line of the step.
std::string to_text(const ExplainedKernels& kernels) {
  std::string text = launches_text(kernels.launches);
  if (kernels.facts) {
    const auto launch = static_cast<std::size_t>(kernels.facts->launch);
    text += facts_text(*kernels.facts, kernels.launches[launch].launch);
  }
  return text;
}

Json to_json(const ExplainedKernels& kernels) {
  Json json = {{"step", kernels.step}, {"launches", Json::array()}, {"attention", nullptr}};
  for (const auto& [launch, what, resources] : kernels.launches) {
    Json each = {{"kernel", launch.kernel},
                 {"what", what},
                 {"grid", launch.grid},
                 {"block", launch.block},
                 {"shared_bytes", launch.shared_bytes},
                 {"registers", nullptr},
                 {"stack_bytes", nullptr}};
    if (resources) {
      each["registers"] = resources->registers;
      each["stack_bytes"] = resources->stack_bytes;
    }
    json["launches"].push_back(std::move(each));
  }
  if (kernels.facts) json["attention"] = facts_json(*kernels.facts);
  return json;
}

std::string when_text(const plan::Step& step) {
  const auto* derive = std::get_if<plan::DeriveStep>(&step);
  if (derive != nullptr && derive->once) return ", once, when the plan is loaded";
  const std::int64_t turns = plan::turns_of(step);
  return turns == 1 ? "" : fmt::format(", {} times", turns);
}

// What the prediction means for the matrix units, where it is of just the scores in the band.
struct Prediction {
  double tflops = 0;
  double peak = 0;  // TFLOP/s of the GPU's products of this type
  DType dtype = DType::bf16;

  double share() const { return tflops / peak; }
};

std::optional<Prediction> prediction_of(const Explanation& explanation,
                                        const ExplainedProgram& program) {
  const auto is_all = [](const ExplainedMask& mask) {
    return !mask.lengths && mask.residual.empty();
  };
  if (!program.compiled || !is_all(explanation) ||
      !std::ranges::all_of(explanation.branches, is_all)) {
    return {};
  }
  const plan::Plan& plan = program.compiled->plan;
  const target::Gpu gpu = target::gpu_of(plan.target);
  if (plan.choice.empty() || plan.choice.front().predicted_ms <= 0 || gpu.matrix_rate <= 0)
    return {};
  const double flops = program.flops * explanation.share_of_work;
  const DType of_products = type_of_products(plan.program, program.dtype);
  return Prediction{flops / plan.choice.front().predicted_ms * 1e-9, gpu.rate(of_products),
                    of_products};
}

std::string prediction_text(const Explanation& explanation, const ExplainedProgram& program) {
  const std::optional<Prediction> predicted = prediction_of(explanation, program);
  if (!predicted) return "";
  return fmt::format("  predicted {:.0f} TFLOP/s: {} of the {:.0f} of dense {}-bit products\n",
                     predicted->tflops, percent_text(predicted->share()), predicted->peak,
                     8 * size_of(predicted->dtype));
}

std::string engine_text(const Explanation& explanation, const ExplainedProgram& program) {
  const plan::Plan& plan = program.compiled->plan;
  std::string text = fmt::format("  for {} (sm_{})", plan.target.name, plan.target.sm);
  if (plan.cudnn_version != 0) text += " by cuDNN " + cudnn_text(plan.cudnn_version);
  text += fmt::format("\n  workspace in all {}\n", memory_text(plan::memory_of(plan)));
  return text + prediction_text(explanation, program);
}

std::string steps_text(const plan::Plan& plan) {
  std::string text;
  auto compiled = plan.compiled.begin();
  const std::vector<ExplainedKernels> kernels = explain_kernels(plan);
  for (std::size_t i = 0; i < plan.program.steps.size(); ++i) {
    const plan::Step& step = plan.program.steps[i];
    if (const auto* derive = std::get_if<plan::DeriveStep>(&step)) {
      text += fmt::format("  step {}: an attnc kernel derives {}{}\n", i,
                          fmt::join(derive->outputs, ", "), when_text(step));
    } else if (const auto* launches = std::get_if<plan::KernelStep>(&step)) {
      text += fmt::format("  step {}: attnc kernels write {}{}\n", i,
                          fmt::join(launches->outputs, ", "), when_text(step));
    } else {
      text +=
          fmt::format("  step {}: cuDNN's engine {} of heuristic {}, knobs {}, workspace {}{}\n", i,
                      compiled->engine, compiled->heuristic, knobs_text(compiled->knobs),
                      bytes_text(compiled->workspace_bytes), when_text(step));
      ++compiled;
    }
    for (const ExplainedKernels& each : kernels) {
      if (each.step == i) text += to_text(each);
    }
  }
  return text;
}

// What its predictions may be wrong about.
std::string doubts_text(const ExplainedProgram& program) {
  std::string text;
  for (const std::string& doubt : program.doubts) {
    text += wrapped("  ", shown(doubt), line_width());
  }
  return text;
}

std::string section(const std::string& before, const char* name, const std::string& text) {
  return text.empty() ? "" : fmt::format("\n{}{}\n{}", before, name, text);
}

}  // namespace

std::string engine_sections(const Explanation& explanation, const ExplainedProgram& program,
                            const std::string& before) {
  if (program.refusal) {
    const std::string target =
        program.refused_target.empty() ? "" : " for " + program.refused_target;
    return section(before, "engine",
                   fmt::format("  none{}\n{}", target,
                               full_error_text(*program.refusal, program.source.get())));
  }
  if (!program.compiled) {
    return section(
        before, "engine",
        fmt::format("  not known: cuDNN could not be loaded ({})\n", explanation.why_not_compiled));
  }
  return section(before, "engine", engine_text(explanation, program)) +
         section(before, "strategies", strategies_text(considered(*program.compiled))) +
         section(before, "predictions", doubts_text(program)) +
         section(before, "steps", steps_text(program.compiled->plan));
}

Json engine_json(const Explanation& explanation, const ExplainedProgram& program) {
  if (program.refusal) {
    return {{"known", false},
            {"target", program.refused_target},
            {"error", error_json(*program.refusal, nullptr)}};
  }
  if (!program.compiled) return {{"known", false}, {"why", explanation.why_not_compiled}};
  const plan::Plan& plan = program.compiled->plan;
  Json json = {{"known", true},
               {"target", plan.target.name},
               {"sm", plan.target.sm},
               {"cudnn", cudnn_text(plan.cudnn_version)},
               {"workspace_bytes", plan::memory_of(plan).total()},
               {"steps", Json::array()}};
  if (!plan.strategy.empty()) {
    json["strategy"] = plan.strategy;
    json["refused"] = refusals_json(program.compiled->refused);
  }
  if (!plan.choice.empty()) json["choice"] = choice_json(plan);
  json["considered"] = to_json(considered(*program.compiled));
  json["doubts"] = program.doubts;
  if (const auto predicted = prediction_of(explanation, program)) {
    json["predicted_tflops"] = predicted->tflops;
    json["peak_tflops"] = predicted->peak;
  }
  if (!program.parts.empty()) json["parts"] = program.parts;
  for (const plan::CompiledStep& step : plan.compiled) {
    Json knobs = Json::object();
    for (const plan::Knob& knob : step.knobs) knobs[fmt::format("{}", knob.type)] = knob.value;
    json["steps"].push_back({{"heuristic", step.heuristic},
                             {"engine", step.engine},
                             {"knobs", knobs},
                             {"workspace_bytes", step.workspace_bytes}});
  }
  json["kernels"] = Json::array();
  for (const ExplainedKernels& each : explain_kernels(plan)) {
    json["kernels"].push_back(to_json(each));
  }
  return json;
}

}  // namespace attn::tools
