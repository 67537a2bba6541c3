#include "compiler/driver/ranks/compile_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/codegen/sources.h"
#include "compiler/nvrtc/nvrtc.h"
#include "compiler/sharding/part_attention.h"
#include "compiler/sharding/rank_program.h"
#include "runtime/plan/container.h"
#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/family.h"
#include "runtime/ranks/program_json.h"
#include "runtime/ranks/tensors.h"

namespace attn::driver {
namespace {

using AllPlans = std::span<const Compiled>;
using Names = std::set<std::string, std::less<>>;

// What the plans of the direction bind.
Names bound_names(AllPlans plans, plan::Direction direction) {
  Names names;
  for (const Compiled& compiled : plans) {
    const plan::Program& program = compiled.plan.program;
    if (plan::direction_of(program) != direction) continue;
    for (const plan::TensorInfo& tensor : program.tensors) names.insert(tensor.name);
    for (const plan::ParamInfo& param : program.params) names.insert(param.name);
  }
  return names;
}

// Names by which plans know what callers bind as `name`.
Names names_in_plans(const ranks::Division& division, const std::string& name) {
  Names names = {name};
  for (const ranks::Program& program : division.ranks) {
    for (const ranks::Part& part : program.parts) {
      if (const auto found = part.renamed.find(name); found != part.renamed.end())
        names.insert(found->second);
    }
  }
  return names;
}

// What plans of a part bind besides tensors of the whole: sums' maxima, numbers of rows, and dv of
// a part that has no share of the gradients that are wanted.
Names other_names(const ranks::Division& division) {
  Names names = {"dv"};
  for (const plan::ParamInfo& param : division.params) names.insert(param.name);
  for (const ranks::Payload& result : ranks::results_of(division))
    names.merge(names_in_plans(division, result.name));
  for (const ranks::Program& program : division.ranks) {
    for (const ranks::Part& part : program.parts) {
      for (const auto& [name, of] : part.numbers) names.insert(name);
    }
  }
  return names;
}

Status match(AllPlans plans, plan::Direction direction, ranks::Division& division) {
  const bool forward = direction == plan::Direction::forward;
  std::vector<ranks::WholeTensor>& tensors = forward ? division.forward : division.backward;
  const Names wanted = bound_names(plans, direction);
  Names known = other_names(division);
  std::vector<ranks::WholeTensor> kept;
  for (const ranks::WholeTensor& tensor : tensors) {
    const Names names = names_in_plans(division, tensor.name);
    known.insert(names.begin(), names.end());
    const bool is_read =
        std::ranges::any_of(names, [&](const std::string& name) { return wanted.contains(name); });
    const bool clears = forward && division.clears_padding && tensor.name == ranks::kLengthsQ;
    const bool is_learned = ranks::find(tensors, "d_" + tensor.name) != nullptr;
    if (is_read || clears || is_learned || tensor.role != plan::TensorRole::captured)
      kept.push_back(tensor);
  }
  tensors = std::move(kept);
  const auto unbound =
      std::ranges::find_if(wanted, [&](const std::string& name) { return !known.contains(name); });
  if (unbound == wanted.end()) return {};
  return {ErrorCode::internal, fmt::format("nobody binds the plans' {}", *unbound)};
}

// Leaves out captured tensors, params and other names that no plan reads. Errors: internal, if a
// plan binds what nobody has.
Status match_plans(AllPlans plans, ranks::Division& division) {
  Names read;
  for (const plan::Direction each : {plan::Direction::forward, plan::Direction::backward}) {
    read.merge(bound_names(plans, each));
    ATTN_RETURN_IF_ERROR(match(plans, each, division));
  }
  std::erase_if(division.params,
                [&](const plan::ParamInfo& param) { return !read.contains(param.name); });
  for (ranks::Program& program : division.ranks) {
    for (ranks::Part& part : program.parts) {
      std::erase_if(part.renamed, [&](const auto& names) { return !read.contains(names.second); });
    }
  }
  return {};
}

constexpr std::size_t kSectionsOfRanks = 2;

// Parts that differ, each with the plans that compute it.
class Compiling {
 public:
  Compiling(const ir::Attention& attention, const support::Source& source,
            const sema::Bindings& bindings, const RanksOptions& options)
      : attention_(attention), source_(source), bindings_(bindings), options_(options) {}

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
    const std::size_t each = options_.both ? 4 : 2;  // sections, at least: a manifest, and a kernel
    const std::size_t most = (plan::kMaxSections - kSectionsOfRanks) / each;
    if (parts_.size() <= most) return {};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the ranks have {} different parts, more than the {} whose plans one "
                             "file can have",
                             parts_.size(), most),
                 {"--split-files writes a file for each rank; ranks of `shard heads` have equal "
                  "parts"}};
  }

  Status run() {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (options_.observer) options_.observer(i, parts_.size(), parts_[i].attention.name);
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

  std::vector<Compiled> take() { return std::move(plans_); }

 private:
  struct Different {
    ir::Attention attention;
    ranks::Part first;
    std::string forward, backward;  // names of plans
  };

  std::size_t index_of(const sharding::Part& part, sharding::Interval key_heads) {
    ir::Attention attention = sharding::part_attention(attention_, part, key_heads).attention;
    const auto [found, is_new] = known_.emplace(attention, parts_.size());
    if (!is_new) return found->second;
    attention.name = fmt::format("{}_part{}", attention_.name, parts_.size());
    parts_.push_back({std::move(attention), part, "", ""});
    return found->second;
  }

  Status compile(Different& part) {
    auto compiled = plans_of(part.attention);
    if (!compiled.ok()) return sharding::in_part(part.first, compiled.error());
    for (Compiled& each : *compiled) {
      const bool backward = plan::direction_of(each.plan.program) == plan::Direction::backward;
      (backward ? part.backward : part.forward) = kept(std::move(each));
    }
    return {};
  }

  Result<std::vector<Compiled>> plans_of(const ir::Attention& attention) const {
    if (options_.both) return compile_pair(attention, source_, bindings_, options_.how);
    ATTN_ASSIGN(Compiled compiled, driver::compile(attention, source_, bindings_, options_.how));
    std::vector<Compiled> one;
    one.push_back(std::move(compiled));
    return one;
  }

  // The name of the plan, or of an equal one that there is.
  std::string kept(Compiled compiled) {
    const auto same = std::ranges::find_if(plans_, [&](const Compiled& other) {
      return other.plan.signature == compiled.plan.signature;
    });
    if (same != plans_.end()) return same->plan.spec_name;
    plans_.push_back(std::move(compiled));
    return plans_.back().plan.spec_name;
  }

  const ir::Attention& attention_;
  const support::Source& source_;
  const sema::Bindings& bindings_;
  const RanksOptions& options_;
  std::vector<Different> parts_;
  std::unordered_map<ir::Attention, std::size_t, ir::AttentionHash> known_;  // of parts_
  std::vector<std::vector<std::size_t>> of_ranks_;  // of parts_, by rank and part
  std::vector<Compiled> plans_;
};

// The plans that a rank's parts name; of a rank without parts the first, because a file has one.
plan::Bundle plans_of_rank(const CompiledFamily& family, std::size_t rank) {
  std::set<std::pair<std::string, plan::Direction>> names;
  for (const ranks::Part& part : family.division.ranks[rank].parts) {
    names.emplace(part.forward, plan::Direction::forward);
    names.emplace(part.backward, plan::Direction::backward);
  }
  plan::Bundle bundle;
  for (const Compiled& compiled : family.plans) {
    const plan::Plan& plan = compiled.plan;
    if (names.contains({plan.spec_name, plan::direction_of(plan.program)}))
      bundle.plans.push_back(plan);
  }
  if (bundle.plans.empty()) bundle.plans.push_back(family.plans.front().plan);
  return bundle;
}

// What is known when all parts are compiled.
Status complete(const Sharded& sharded, bool both, plan::Direction direction,
                CompiledFamily& family) {
  ranks::Division& division = family.division;
  if (!both) (direction == plan::Direction::forward ? division.backward : division.forward).clear();
  ATTN_RETURN_IF_ERROR(match_plans(family.plans, division));
  for (const Sharded::Input& input : sharded.inputs)
    division.values.push_back({input.name, input.origin, input.hash});
  division.family = ranks::family_hash(division, {bundle_of(family.plans), "", family.kernels});
  return {};
}

}  // namespace

std::string file_of_rank(const std::string& path, std::size_t rank) {
  return fmt::format("{}.{}", path, rank);
}

Result<CompiledFamily> compile_ranks(const ir::Attention& attention, const support::Source& source,
                                     const sema::Bindings& bindings, const Sharded& sharded,
                                     const RanksOptions& options) {
  const sharding::Sharding& dealt = sharded.choice.sharding;
  const sharding::RankPrograms programs = sharding::rank_programs(dealt, sharded.map, attention);
  Compiling compiling(attention, source, bindings, options);
  compiling.add(programs);
  if (!options.split) ATTN_RETURN_IF_ERROR(compiling.check_room());
  ATTN_RETURN_IF_ERROR(compiling.run());
  CompiledFamily family{{}, programs.division, {}};
  compiling.name_plans(family.division);
  family.plans = compiling.take();
  if (family.plans.empty()) {
    return {ErrorCode::unsupported, "the mask hides everything: no rank has anything to compute"};
  }
  ATTN_ASSIGN(family.kernels,
              nvrtc::compile_kernel(codegen::include_text("ranks.cuh"), options.how.target.sm,
                                    options.how.worker.cudnn_folder));
  ATTN_RETURN_IF_ERROR(complete(sharded, options.both, options.how.direction, family));
  return family;
}

Status save(const CompiledFamily& family, const std::string& path, bool split) {
  if (!split) {
    return plan::save(
        plan::Family{bundle_of(family.plans), ranks::to_json(family.division), family.kernels},
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

}  // namespace attn::driver
