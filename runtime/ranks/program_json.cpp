#include "runtime/ranks/program_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "runtime/base/check.h"
#include "runtime/plan/container.h"
#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/program_members.h"
#include "runtime/ranks/tensors.h"

namespace attn::ranks {
namespace {

// What is the same for all groups of heads, as one; an empty list if there is none.
std::vector<std::string> names_of_plans(const Division& division, std::size_t team,
                                        std::size_t part, std::string Part::*plan) {
  std::vector<std::string> names;
  const auto groups = static_cast<std::size_t>(division.groups_of_heads);
  for (std::size_t group = 0; group < groups; ++group)
    names.push_back(division.ranks[team * groups + group].parts[part].*plan);
  const bool same = std::ranges::adjacent_find(names, std::not_equal_to()) == names.end();
  if (same) names.resize(names.front().empty() ? 0 : 1);
  return names;
}

std::string read_name(const json::Value& value) {
  std::string name = value.text();
  if (name.empty()) value.fail("is empty");
  return name;
}

void check_set(const json::Value& value, const Intervals& set, std::int64_t size) {
  std::int64_t last = -1;
  for (const auto& [begin, end] : set) {
    if (last >= begin || begin >= end || end > size)
      return value.fail(fmt::format("is not an ascending set of numbers below {}", size));
    last = end;
  }
}

// Calls check(value, element) for each element of a list that was read.
template <typename Element, typename Check>
void check_each(const json::Value& value, const std::vector<Element>& list, const Check& check) {
  std::size_t at = 0;
  (void)value.list([&](const json::Value& each) {
    check(each, list[at]);
    return ++at;
  });
}

class Reading {
 public:
  explicit Reading(json::Failure& failure) : failure_(failure) {}

  Division run(const json::Value& value) {
    json::Reader::read(value, division_);
    if (failure_.ok()) check_whole(value);
    if (failure_.ok()) check_homes(value);
    if (failure_.ok()) check_tensors(value);
    if (failure_.ok()) take_teams(value["teams"]);
    return std::move(division_);
  }

 private:
  void check_whole(const json::Value& value) const {
    if (!can_merge(division_.dtype)) value["dtype"].fail("is not a type that can be merged");
    if (division_.query_heads % division_.key_heads != 0)
      value["dims"]["Hq"].fail("is no multiple of the key heads");
    check_each(value["params"], division_.params,
               [](const json::Value& param, const auto&) { (void)read_name(param["name"]); });
  }

  // Each row and each key is at home on one rank.
  void check_homes(const json::Value& value) {
    const json::Value homes = value["homes"];
    check_each(homes, division_.ranks, [&](const json::Value& home, const Program& program) {
      check_set(home["rows"], program.rows, division_.rows);
      check_set(home["keys"], program.keys, division_.keys);
    });
    if (!failure_.ok()) return;
    const auto ranks = static_cast<std::int64_t>(division_.ranks.size());
    if (ranks < 1 || ranks > kMostRanks) return homes.fail("are too few or too many ranks");
    if (ranks % division_.groups_of_heads != 0 ||
        division_.key_heads % division_.groups_of_heads != 0) {
      return value["groups_of_heads"].fail("divides neither or only one of ranks and key heads");
    }
    for (int rank = 0; Program & program : division_.ranks) {
      program.rank = rank++;
      program.key_heads = division_.key_heads_of(program.rank);
    }
    check_partition(homes, &Program::rows, division_.rows);
    check_partition(homes, &Program::keys, division_.keys);
    if (value.has("rank")) (void)value["rank"].integer(0, ranks - 1);
  }

  void check_partition(const json::Value& homes, Intervals Program::*set, std::int64_t size) const {
    Intervals all;
    for (const Program& program : division_.ranks)
      all.insert(all.end(), (program.*set).begin(), (program.*set).end());
    std::ranges::sort(all, {}, &Interval::begin);
    std::int64_t end = 0;
    for (const Interval& each : all) {
      if (each.begin != end) break;
      end = each.end;
    }
    if (end != size || all.back().end != size)
      homes.fail("do not have every row and every key once");
  }

  void check_tensors(const json::Value& value) const {
    if (division_.forward.empty() && division_.backward.empty())
      value["forward"].fail("is empty, like `backward`");
    if (const std::string fault = fault_of(division_, plan::Direction::forward); !fault.empty())
      value["forward"].fail(fault);
    if (const std::string fault = fault_of(division_, plan::Direction::backward); !fault.empty())
      value["backward"].fail(fault);
  }

  void take_teams(const json::Value& value) {
    std::vector<std::vector<TeamPart>> teams;
    json::Reader::read(value, teams);
    if (!failure_.ok()) return;
    if (teams.size() != static_cast<std::size_t>(division_.teams()))
      return value.fail(fmt::format("are {}, but must be {}", teams.size(), division_.teams()));
    int team = 0;
    check_each(value, teams, [&](const json::Value& parts, const std::vector<TeamPart>& list) {
      int stage = 0;
      check_each(parts, list, [&](const json::Value& part, const TeamPart& each) {
        take_part(part, each, team, stage);
      });
      ++team;
    });
  }

  void take_part(const json::Value& value, const TeamPart& of_team, int team, int& stage) {
    (void)value["stage"].integer(stage, kMostStages - 1);
    stage = of_team.stage;
    check_set(value["rows"], of_team.rows, division_.rows);
    check_set(value["keys"], of_team.keys, division_.keys);
    if (of_team.rows.empty()) value["rows"].fail("is empty");
    if (of_team.keys.empty()) value["keys"].fail("is empty");
    check_renamed(value["renamed"]);
    check_numbers(value["numbers"]);
    const auto forward = plans_of(value["forward"], !division_.forward.empty());
    const auto backward = plans_of(value["backward"], !division_.backward.empty());
    if (!failure_.ok()) return;
    for (int group = 0; group < division_.groups_of_heads; ++group) {
      const auto at = static_cast<std::size_t>(group);
      division_.ranks[static_cast<std::size_t>(team * division_.groups_of_heads + group)]
          .parts.push_back(
              {of_team.stage, of_team.rows, of_team.keys, forward[std::min(at, forward.size() - 1)],
               backward[std::min(at, backward.size() - 1)], of_team.renamed, of_team.numbers});
    }
  }

  // One for all groups of heads, or one for each; "" if the direction is not compiled.
  std::vector<std::string> plans_of(const json::Value& value, bool compiled) const {
    std::vector<std::string> names = value.list(read_name);
    const auto groups = static_cast<std::size_t>(division_.groups_of_heads);
    const bool good = compiled ? names.size() == 1 || names.size() == groups : names.empty();
    if (!good) value.fail("does not name one plan, or one for each group of heads");
    if (names.empty()) names.emplace_back();
    return names;
  }

  // Tensors that the whole has.
  void check_renamed(const json::Value& value) const {
    (void)value.list([&](const json::Value& each) {
      const std::string name = read_name(each["name"]);
      if (!has_tensor(name) && find_carried(name) == nullptr)
        each["name"].fail("is no tensor of the attention");
      return read_name(each["in_plan"]);
    });
  }

  bool has_tensor(const std::string& name) const {
    return find(division_.forward, name) != nullptr || find(division_.backward, name) != nullptr;
  }

  static void check_numbers(const json::Value& value) {
    (void)value.list([](const json::Value& each) {
      if (each["of"].text() == to_string(Divided::no)) each["of"].fail("is neither rows nor keys");
      return read_name(each["name"]);
    });
  }

  json::Failure& failure_;
  Division division_;
};

Error damaged(const Error& error) {
  return plan::damaged("the plan file's ranks: " + error.message);
}

}  // namespace

std::string_view to_string(Divided divided) {
  if (divided == Divided::no) return "no";
  return divided == Divided::rows ? "rows" : "keys";
}

std::optional<Divided> parse_divided(std::string_view text) {
  for (const Divided divided : {Divided::no, Divided::rows, Divided::keys}) {
    if (to_string(divided) == text) return divided;
  }
  return std::nullopt;
}

std::vector<std::vector<TeamPart>> teams_of(const Division& division) {
  std::vector<std::vector<TeamPart>> teams;
  for (std::size_t team = 0; team < static_cast<std::size_t>(division.teams()); ++team) {
    const auto first = team * static_cast<std::size_t>(division.groups_of_heads);
    std::vector<TeamPart>& parts = teams.emplace_back();
    for (std::size_t at = 0; at < division.ranks[first].parts.size(); ++at) {
      const Part& part = division.ranks[first].parts[at];
      parts.push_back(
          {part.stage, part.rows, part.keys, names_of_plans(division, team, at, &Part::forward),
           names_of_plans(division, team, at, &Part::backward), part.renamed, part.numbers});
    }
  }
  return teams;
}

nlohmann::ordered_json json_of(const Division& division) { return json::json_of(division); }

std::string to_json(const Division& division) { return json_of(division).dump(); }

Result<Division> parse(std::string_view text, std::optional<int> rank) {
  const Result<nlohmann::json> parsed = json::parse(
      text, {.bytes = plan::kMaxManifestBytes, .members = 1024, .values = plan::kMaxRanksValues});
  if (!parsed.ok()) return damaged(parsed.error());
  json::Failure failure;
  Division division = Reading(failure).run(json::Value(*parsed, failure));
  if (!failure.ok()) return damaged(failure.status().error());
  if (rank && (*rank < 0 || *rank >= static_cast<int>(division.ranks.size()))) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("there is no rank {} of {}", *rank, division.ranks.size())};
  }
  add_exchanges(division, rank);
  return division;
}

}  // namespace attn::ranks
