#include "tools/compile_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/codegen/sources.h"
#include "compiler/nvrtc/nvrtc.h"
#include "compiler/sharding/part_attention.h"
#include "compiler/sharding/rank_program.h"
#include "runtime/plan/container.h"
#include "runtime/plan/memory.h"
#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/family.h"
#include "runtime/ranks/program_json.h"
#include "tools/bound_tensors.h"
#include "tools/console.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

constexpr std::size_t kSectionsOfRanks = 2;

// Parts that differ, each with the plans that compute it.
class Compiling {
 public:
  Compiling(const Spec& spec, const driver::CompileOptions& how, bool both)
      : spec_(spec), how_(how), both_(both) {}

  // Adds all parts, before any is compiled.
  void add(const sharding::RankPrograms& programs) {
    for (const ranks::Program& program : programs.division.ranks) {
      std::vector<std::size_t>& of_rank = of_ranks_.emplace_back();
      for (const sharding::Part& part : programs.parts_of(program.rank))
        of_rank.push_back(index_of(part, program.key_heads));
    }
  }

  // Checks the room in the file before hours of compiling.
  Status check_room() const {
    const std::size_t each = both_ ? 4 : 2;  // sections, at least: a manifest, and a kernel
    const std::size_t most = (plan::kMaxSections - kSectionsOfRanks) / each;
    if (parts_.size() <= most) return {};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the ranks have {} different parts, more than the {} whose plans one "
                             "file can have",
                             parts_.size(), most),
                 {"--split-files writes a file for each rank; ranks of `shard heads` have equal "
                  "parts"},
                 {}};
  }

  Status run() {
    Progress progress("compile", parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      progress.show(i, fmt::format("part {}", i));
      ATTN_RETURN_IF_ERROR(compile(parts_[i]));
    }
    return {};
  }

  void name_plans(ranks::Division& division) const {
    for (ranks::Program& program : division.ranks) {
      const std::vector<std::size_t>& of_rank = of_ranks_[static_cast<std::size_t>(program.rank)];
      for (std::size_t i = 0; i < of_rank.size(); ++i) {
        program.parts[i].forward = parts_[of_rank[i]].forward;
        program.parts[i].backward = parts_[of_rank[i]].backward;
      }
    }
  }

  std::vector<driver::Compiled> take() { return std::move(plans_); }

 private:
  struct Different {
    ir::Attention attention;
    ranks::Part first;
    std::string forward, backward;  // names of plans
  };

  std::size_t index_of(const sharding::Part& part, sharding::Interval key_heads) {
    ir::Attention attention = sharding::part_attention(spec_.attention, part, key_heads).attention;
    const auto [found, is_new] = known_.emplace(to_text(attention), parts_.size());
    if (!is_new) return found->second;
    attention.name = fmt::format("{}_part{}", spec_.attention.name, parts_.size());
    parts_.push_back({std::move(attention), part, "", ""});
    return found->second;
  }

  Status compile(Different& part) {
    tell_detail(fmt::format("compile `{}`", part.attention.name));
    auto compiled = plans_of(part.attention);
    if (!compiled.ok()) return sharding::in_part(part.first, compiled.error());
    for (driver::Compiled& each : *compiled) {
      const bool backward = plan::direction_of(each.plan.program) == plan::Direction::backward;
      (backward ? part.backward : part.forward) = kept(std::move(each));
    }
    return {};
  }

  Result<std::vector<driver::Compiled>> plans_of(const ir::Attention& attention) const {
    if (both_) return driver::compile_pair(attention, *spec_.source, spec_.bindings, how_);
    ATTN_ASSIGN(driver::Compiled compiled,
                driver::compile(attention, *spec_.source, spec_.bindings, how_));
    std::vector<driver::Compiled> one;
    one.push_back(std::move(compiled));
    return one;
  }

  // The name of the plan, or of an equal one that there is.
  std::string kept(driver::Compiled compiled) {
    const auto same = std::ranges::find_if(plans_, [&](const driver::Compiled& other) {
      return other.plan.signature == compiled.plan.signature;
    });
    if (same != plans_.end()) return same->plan.spec_name;
    plans_.push_back(std::move(compiled));
    return plans_.back().plan.spec_name;
  }

  const Spec& spec_;
  const driver::CompileOptions& how_;
  const bool both_;
  std::vector<Different> parts_;
  std::map<std::string, std::size_t> known_;        // of parts_, by text
  std::vector<std::vector<std::size_t>> of_ranks_;  // of parts_, by rank and part
  std::vector<driver::Compiled> plans_;
};

// The plans that a rank's parts name; of a rank without parts the first, because a file has one.
plan::Bundle plans_of_rank(const CompiledFamily& family, std::size_t rank) {
  std::set<std::pair<std::string, plan::Direction>> names;
  for (const ranks::Part& part : family.division.ranks[rank].parts) {
    names.emplace(part.forward, plan::Direction::forward);
    names.emplace(part.backward, plan::Direction::backward);
  }
  plan::Bundle bundle;
  for (const driver::Compiled& compiled : family.plans) {
    const plan::Plan& plan = compiled.plan;
    if (names.contains({plan.spec_name, plan::direction_of(plan.program)}))
      bundle.plans.push_back(plan);
  }
  if (bundle.plans.empty()) bundle.plans.push_back(family.plans.front().plan);
  return bundle;
}

std::string file_of_rank(const std::string& path, std::size_t rank) {
  return fmt::format("{}.{}", path, rank);
}

using Way = std::vector<ranks::Message> ranks::Exchange::*;

std::int64_t bytes_of(const ranks::Exchange& exchange, Way way, const ranks::Division& division) {
  std::int64_t bytes = 0;
  for (const ranks::Message& message : exchange.*way) bytes += ranks::bytes_of(message, division);
  return bytes;
}

// What `program` receives or sends in one direction.
std::string exchanged_text(const ranks::Program& program, Way way,
                           const ranks::Division& division) {
  const bool backward = division.forward.empty();
  std::int64_t bytes = bytes_of(backward ? program.gradients : program.results, way, division);
  for (const ranks::Exchange& exchange : backward ? program.backward_inputs : program.inputs)
    bytes += bytes_of(exchange, way, division);
  return bytes_text(bytes);
}

// What is known when all parts are compiled.
Status complete(const Sharded& sharded, bool both, plan::Direction direction,
                CompiledFamily& family) {
  ranks::Division& division = family.division;
  if (!both) (direction == plan::Direction::forward ? division.backward : division.forward).clear();
  ATTN_RETURN_IF_ERROR(match_plans(family.plans, division));
  for (const Sharded::Input& input : sharded.inputs)
    division.values.push_back({input.name, input.origin, input.hash});
  division.family =
      ranks::family_hash(division, {driver::bundle_of(family.plans), "", family.kernels});
  return {};
}

}  // namespace

Result<CompiledFamily> compile_ranks(const Spec& spec, const Sharded& sharded,
                                     const driver::CompileOptions& how, bool both, bool split) {
  const sharding::Sharding& dealt = sharded.choice.sharding;
  const sharding::RankPrograms programs =
      sharding::rank_programs(dealt, sharded.map, spec.attention);
  Compiling compiling(spec, how, both);
  compiling.add(programs);
  if (!split) ATTN_RETURN_IF_ERROR(compiling.check_room());
  ATTN_RETURN_IF_ERROR(compiling.run());
  CompiledFamily family{{}, programs.division, {}};
  compiling.name_plans(family.division);
  family.plans = compiling.take();
  if (family.plans.empty()) {
    return {ErrorCode::unsupported, "the mask hides everything: no rank has anything to compute"};
  }
  ATTN_ASSIGN(family.kernels, nvrtc::compile_kernel(codegen::include_text("ranks.cuh"),
                                                    how.target.sm, how.worker.cudnn_folder));
  ATTN_RETURN_IF_ERROR(complete(sharded, both, how.direction, family));
  return family;
}

Status save(const CompiledFamily& family, const std::string& path, bool split) {
  if (!split) {
    return plan::save(plan::Family{driver::bundle_of(family.plans), ranks::to_json(family.division),
                                   family.kernels},
                      path);
  }
  ranks::Division division = family.division;
  for (std::size_t rank = 0; rank < division.ranks.size(); ++rank) {
    division.only = static_cast<int>(rank);
    const plan::Family of_rank{plans_of_rank(family, rank), ranks::to_json(division),
                               family.kernels};
    ATTN_RETURN_IF_ERROR(plan::save(of_rank, file_of_rank(path, rank)));
  }
  return {};
}

std::string to_text(const CompiledFamily& family, const std::string& path, bool split) {
  const std::size_t last = family.division.ranks.size() - 1;
  std::string text = ranks_text(
      family.division,
      split ? fmt::format("{} to {}", file_of_rank(path, 0), file_of_rank(path, last)) : path);
  using enum Align;
  Table table(
      {{"plan"}, {"direction"}, {"strategy"}, {"predicted ms", right}, {"total workspace", right}});
  for (const driver::Compiled& compiled : family.plans) {
    const plan::Plan& plan = compiled.plan;
    table.add({plan.spec_name, std::string(to_string(plan::direction_of(plan.program))),
               plan.strategy,
               plan.choice.empty() ? "" : fmt::format("{:.3f}", plan.choice.front().predicted_ms),
               bytes_text(plan::memory_of(plan).total())});
  }
  return text + "\n" + table.to_text("  ") +
         fmt::format("  runs on {}\n", runs_on_text(family.plans.front().plan.target.sm));
}

Json to_json(const CompiledFamily& family, const std::string& path, bool split) {
  Json plans = Json::array();
  for (const driver::Compiled& compiled : family.plans) {
    const plan::Plan& plan = compiled.plan;
    plans.push_back({{"name", plan.spec_name},
                     {"direction", to_string(plan::direction_of(plan.program))},
                     {"decision", decision_json(plan)}});
  }
  Json files = Json::array();
  if (split) {
    for (std::size_t rank = 0; rank < family.division.ranks.size(); ++rank)
      files.push_back(file_of_rank(path, rank));
  } else {
    files.push_back(path);
  }
  Json json = {{"plan", path}, {"files", std::move(files)}};
  json["ranks"] = Json::parse(ranks::to_json(family.division));
  json["plans"] = std::move(plans);
  return json;
}

std::string ranks_text(const ranks::Division& division, const std::string& path) {
  const std::string only =
      division.only < 0 ? "" : fmt::format(", with the plans of rank {}", division.only);
  std::string text = fmt::format("{}: `{}` on {}{}\n\n", path, shown(division.name),
                                 shown(division.sharding), only);
  using enum Align;
  Table table({{"rank", right},
               {"rows"},
               {"keys"},
               {"key heads"},
               {"parts", right},
               {"receives", right},
               {"sends", right}});
  ranks::Division exchanging = division;
  for (ranks::Program& program : exchanging.ranks) {
    ranks::add_exchanges(exchanging, program.rank);
    table.add({std::to_string(program.rank), home_text(program.rows), home_text(program.keys),
               ranks::to_text({program.key_heads}), std::to_string(program.parts.size()),
               exchanged_text(program, &ranks::Exchange::receives, division),
               exchanged_text(program, &ranks::Exchange::sends, division)});
    program.inputs = program.backward_inputs = {};
    program.results = program.gradients = {};
  }
  return text + table.to_text("  ") +
         fmt::format("  rows, keys: which the rank has; receives, sends: in the {}\n",
                     division.forward.empty() ? "backward" : "forward");
}

}  // namespace attn::tools
