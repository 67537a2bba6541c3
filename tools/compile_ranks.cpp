#include "tools/compile_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/hash.h"
#include "tools/console.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

// Parts that differ, each with the plans that compute it.
class Compiling {
 public:
  Compiling(const Spec& spec, const driver::CompileOptions& how, bool both)
      : spec_(spec), how_(how), both_(both) {}

  Result<sharding::PartPlans> plans_of(const sharding::Part& part, sharding::Interval key_heads) {
    ir::Attention attention = sharding::part_attention(spec_.attention, part, key_heads).attention;
    const std::string text = to_text(attention);
    if (const auto found = known_.find(text); found != known_.end()) return found->second;
    attention.name = fmt::format("{}_part{}", spec_.attention.name, known_.size());
    tell_detail(fmt::format("compile `{}`", attention.name));
    auto compiled = compile(attention);
    if (!compiled.ok()) {
      Error error = compiled.error();
      error.message = fmt::format("rows {}, keys {}: {}", sharding::to_text(part.rows),
                                  sharding::to_text(part.keys), error.message);
      return error;
    }
    sharding::PartPlans plans;
    for (driver::Compiled& each : *compiled) {
      const bool backward = plan::direction_of(each.plan.program) == plan::Direction::backward;
      (backward ? plans.backward : plans.forward) = kept(std::move(each));
    }
    return known_[text] = plans;
  }

  std::vector<driver::Compiled> take() { return std::move(plans_); }

 private:
  Result<std::vector<driver::Compiled>> compile(const ir::Attention& attention) const {
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
  std::map<std::string, sharding::PartPlans> known_;  // by the text of the part
  std::vector<driver::Compiled> plans_;
};

// The plans that a rank's parts name; of a rank without parts the first, because a file has one.
plan::Bundle plans_of_rank(const CompiledFamily& family, std::size_t rank) {
  std::set<std::pair<std::string, plan::Direction>> names;
  for (const sharding::PartPlans& part : family.of_ranks[rank]) {
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

// Throws a Json::exception if it is none.
std::int64_t integer(const Json& json) {
  return json.is_number_integer() ? json.get<std::int64_t>() : json.get_ref<const std::int64_t&>();
}

// "0..64, 448..512" of [[0, 64], [448, 512]].
std::string intervals_text(const Json& list) {
  std::string text;
  for (std::size_t i = 0; list.is_array() && i < list.size(); ++i) {
    if (i == 4) return text + fmt::format(", .. {} more", list.size() - i);
    text +=
        fmt::format("{}{}..{}", i == 0 ? "" : ", ", integer(list[i].at(0)), integer(list[i].at(1)));
  }
  return text;
}

std::size_t messages(const Json& exchanges, const char* way) {
  std::size_t count = 0;
  for (const Json& exchange : exchanges) count += exchange.at(way).size();
  return count;
}

// Of all that ranks must have the same of, because they exchange what it says: the programs, the
// values that they are for, and the plans.
std::string family_hash(const CompiledFamily& family) {
  std::string text = family.ranks.dump();
  for (const driver::Compiled& compiled : family.plans)
    text += compiled.plan.signature.hash.to_hex();
  return hash128(text).to_hex();
}

}  // namespace

Result<CompiledFamily> compile_ranks(const Spec& spec, const Sharded& sharded,
                                     const driver::CompileOptions& how, bool both) {
  const sharding::Sharding& dealt = sharded.choice.sharding;
  const std::vector<sharding::RankProgram> programs =
      sharding::rank_programs(dealt, sharded.map, spec.attention);
  Compiling compiling(spec, how, both);
  CompiledFamily family;
  Progress progress("compile", programs.size());
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    progress.show(rank, fmt::format("rank {}", rank));
    std::vector<sharding::PartPlans>& plans = family.of_ranks.emplace_back();
    for (const sharding::Part& part : programs[rank].parts) {
      ATTN_ASSIGN(sharding::PartPlans of_part, compiling.plans_of(part, programs[rank].key_heads));
      plans.push_back(std::move(of_part));
    }
  }
  family.plans = compiling.take();
  if (family.plans.empty()) {
    return {ErrorCode::unsupported, "the mask hides everything: no rank has anything to compute"};
  }
  family.ranks = sharding::to_json(spec.attention, dealt, programs, family.of_ranks);
  family.ranks["inputs"] = inputs_json(sharded);
  family.ranks["family"] = family_hash(family);
  return family;
}

Status save(const CompiledFamily& family, const std::string& path, bool split) {
  if (!split) {
    return plan::save(plan::Family{driver::bundle_of(family.plans), family.ranks.dump()}, path);
  }
  for (std::size_t rank = 0; rank < family.of_ranks.size(); ++rank) {
    Json ranks = family.ranks;
    ranks["rank"] = rank;
    ATTN_RETURN_IF_ERROR(plan::save(plan::Family{plans_of_rank(family, rank), ranks.dump()},
                                    fmt::format("{}.{}", path, rank)));
  }
  return {};
}

std::string to_text(const CompiledFamily& family, const std::string& path) {
  std::string text = ranks_text(family.ranks, path);
  Table table({{"plan"}, {"direction"}, {"lowering"}, {"predicted ms", Align::right}});
  for (const driver::Compiled& compiled : family.plans) {
    const plan::Plan& plan = compiled.plan;
    table.add({plan.spec_name, std::string(to_string(plan::direction_of(plan.program))),
               plan.lowering,
               plan.choice.empty() ? "" : fmt::format("{:.3f}", plan.choice.front().predicted_ms)});
  }
  return text + "\n" + table.to_text("  ");
}

Json to_json(const CompiledFamily& family, const std::string& path) {
  Json plans = Json::array();
  for (const driver::Compiled& compiled : family.plans) {
    const plan::Plan& plan = compiled.plan;
    plans.push_back({{"name", plan.spec_name},
                     {"direction", to_string(plan::direction_of(plan.program))},
                     {"decision", decision_json(plan)}});
  }
  return {{"plan", path}, {"ranks", family.ranks}, {"plans", std::move(plans)}};
}

std::string ranks_text(const Json& ranks, const std::string& path) {
  try {
    std::string text =
        fmt::format("{}: `{}` on {}\n\n", path, shown(ranks.at("name").get<std::string>()),
                    shown(ranks.at("sharding").get<std::string>()));
    using enum Align;
    Table table({{"rank", right},
                 {"rows"},
                 {"key heads"},
                 {"parts", right},
                 {"receives", right},
                 {"sends", right}});
    for (const Json& rank : ranks.at("of_ranks")) {
      table.add({std::to_string(integer(rank.at("rank"))), intervals_text(rank.at("rows")),
                 intervals_text(Json::array({rank.at("key_heads")})),
                 std::to_string(rank.at("parts").size()),
                 std::to_string(messages(rank.at("inputs"), "receives")),
                 std::to_string(messages(rank.at("inputs"), "sends"))});
    }
    return text + table.to_text("  ");
  } catch (const Json::exception&) {
    return fmt::format("{}: ranks that this attnc does not understand\n", path);
  }
}

}  // namespace attn::tools
