#include "runtime/ranks/program_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/graph/json_value.h"
#include "runtime/plan/container.h"
#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/tensors.h"

namespace attn::ranks {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostSize = std::int64_t{1} << 31;      // of a dimension
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;  // of a tensor
constexpr std::int64_t kMostStages = 1024;

std::string_view to_text(Divided divided) {
  if (divided == Divided::no) return "no";
  return divided == Divided::rows ? "rows" : "keys";
}

std::optional<Divided> parse_divided(std::string_view text) {
  for (const Divided divided : {Divided::no, Divided::rows, Divided::keys}) {
    if (to_text(divided) == text) return divided;
  }
  return std::nullopt;
}

// ---- Writing

// [begin, end, begin, end, ..]
Json json_of(const Intervals& set) {
  Json list = Json::array();
  for (const Interval& each : set) list.push_back(each.begin), list.push_back(each.end);
  return list;
}

Json json_of(const std::vector<WholeTensor>& tensors) {
  Json list = Json::array();
  for (const WholeTensor& tensor : tensors) {
    list.push_back({{"name", json::of_text(tensor.name)},
                    {"role", to_string(tensor.role)},
                    {"dtype", to_string(tensor.dtype)},
                    {"dims", tensor.dims},
                    {"divided", to_text(tensor.divided)}});
  }
  return list;
}

// What is the same for all ranks, as one; an empty list if there is none.
Json names_of_plans(const Division& division, std::size_t team, std::size_t part,
                    std::string Part::*plan) {
  Json names = Json::array();
  const auto groups = static_cast<std::size_t>(division.groups_of_heads);
  bool same = true;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::string& name = division.ranks[team * groups + group].parts[part].*plan;
    names.push_back(json::of_text(name));
    same = same && names.back() == names.front();
  }
  if (!same) return names;
  const bool none = (division.ranks[team * groups].parts[part].*plan).empty();
  return none ? Json::array() : Json::array({names.front()});
}

Json json_of(const Division& division, std::size_t team, std::size_t at) {
  const Part& part =
      division.ranks[team * static_cast<std::size_t>(division.groups_of_heads)].parts[at];
  Json renamed = Json::array(), numbers = Json::array();
  for (const auto& [whole, name] : part.renamed)
    renamed.push_back({{"name", json::of_text(whole)}, {"in_plan", json::of_text(name)}});
  for (const auto& [name, of] : part.numbers)
    numbers.push_back({{"name", json::of_text(name)}, {"of", to_text(of)}});
  return {{"stage", part.stage},
          {"rows", json_of(part.rows)},
          {"keys", json_of(part.keys)},
          {"forward", names_of_plans(division, team, at, &Part::forward)},
          {"backward", names_of_plans(division, team, at, &Part::backward)},
          {"renamed", std::move(renamed)},
          {"numbers", std::move(numbers)}};
}

Json json_of_teams(const Division& division) {
  Json teams = Json::array();
  for (std::size_t team = 0; team < static_cast<std::size_t>(division.teams()); ++team) {
    Json parts = Json::array();
    const auto first = team * static_cast<std::size_t>(division.groups_of_heads);
    for (std::size_t at = 0; at < division.ranks[first].parts.size(); ++at)
      parts.push_back(json_of(division, team, at));
    teams.push_back(std::move(parts));
  }
  return teams;
}

Json json_of_homes(const Division& division) {
  Json homes = Json::array();
  for (const Program& program : division.ranks)
    homes.push_back({{"rows", json_of(program.rows)}, {"keys", json_of(program.keys)}});
  return homes;
}

Json json_of(const std::vector<plan::ParamInfo>& params) {
  Json list = Json::array();
  for (const plan::ParamInfo& param : params)
    list.push_back({{"name", json::of_text(param.name)}, {"dtype", to_string(param.dtype)}});
  return list;
}

Json json_of(const std::vector<GivenValue>& values) {
  Json list = Json::array();
  for (const GivenValue& value : values) {
    list.push_back({{"name", json::of_text(value.name)},
                    {"from", json::of_text(value.from)},
                    {"hash", json::of_text(value.hash)}});
  }
  return list;
}

// ---- Reading

Intervals read_set(const json::Value& value, std::int64_t size) {
  const std::vector<std::int64_t> ends = value.integers();
  Intervals set;
  std::int64_t last = -1;
  bool good = ends.size() % 2 == 0;
  for (std::size_t i = 0; good && i < ends.size(); i += 2) {
    good = last < ends[i] && ends[i] < ends[i + 1] && ends[i + 1] <= size;
    last = ends[i + 1];
    set.push_back({ends[i], ends[i + 1]});
  }
  if (good) return set;
  value.fail(fmt::format("is not an ascending set of numbers below {}", size));
  return {};
}

std::string read_name(const json::Value& value) {
  std::string name = value.text();
  if (name.empty()) value.fail("is empty");
  return name;
}

class Reading {
 public:
  explicit Reading(json::Failure& failure) : failure_(failure) {}

  Division run(const json::Value& value) {
    value.only({"name", "dtype", "dims", "sigmoid", "clears_padding", "groups_of_heads", "sharding",
                "forward", "backward", "params", "values", "homes", "teams", "rank", "family"});
    division_.name = read_name(value["name"]);
    division_.dtype = value["dtype"].named(parse_dtype);
    if (!can_merge(division_.dtype)) value["dtype"].fail("is not a type that can be merged");
    read_dims(value["dims"]);
    division_.sigmoid = value["sigmoid"].boolean();
    division_.clears_padding = value["clears_padding"].boolean();
    division_.sharding = value["sharding"].text();
    division_.family = value["family"].text();
    read_homes(value);
    if (!failure_.ok()) return {};
    read_tensors(value);
    if (failure_.ok()) read_teams(value["teams"]);
    return std::move(division_);
  }

 private:
  std::int64_t size(const json::Value& value) const { return value.integer(1, kMostSize); }

  void read_dims(const json::Value& value) {
    value.only({"B", "Hq", "Hkv", "Sq", "Skv", "Dqk", "Dv"});
    division_.batches = size(value["B"]);
    division_.query_heads = size(value["Hq"]);
    division_.key_heads = size(value["Hkv"]);
    division_.rows = size(value["Sq"]);
    division_.keys = size(value["Skv"]);
    division_.width_qk = size(value["Dqk"]);
    division_.width_v = size(value["Dv"]);
    if (failure_.ok() && division_.query_heads % division_.key_heads != 0)
      value["Hq"].fail("is no multiple of the key heads");
  }

  // Each row and each key is at home on one rank.
  void read_homes(const json::Value& value) {
    if (!failure_.ok()) return;
    const json::Value homes = value["homes"];
    homes.list([&](const json::Value& home) {
      home.only({"rows", "keys"});
      Program program;
      program.rank = static_cast<int>(division_.ranks.size());
      program.rows = read_set(home["rows"], division_.rows);
      program.keys = read_set(home["keys"], division_.keys);
      division_.ranks.push_back(std::move(program));
      return 0;
    });
    const auto ranks = static_cast<std::int64_t>(division_.ranks.size());
    if (ranks < 1 || ranks > kMostRanks) return homes.fail("are too few or too many ranks");
    const json::Value groups = value["groups_of_heads"];
    division_.groups_of_heads = static_cast<int>(groups.integer(1, ranks));
    if (!failure_.ok()) return;
    if (ranks % division_.groups_of_heads != 0 ||
        division_.key_heads % division_.groups_of_heads != 0)
      return groups.fail("divides neither or only one of ranks and key heads");
    for (Program& program : division_.ranks)
      program.key_heads = division_.key_heads_of(program.rank);
    check_partition(homes, &Program::rows, division_.rows);
    check_partition(homes, &Program::keys, division_.keys);
    if (value.has("rank")) division_.only = static_cast<int>(value["rank"].integer(0, ranks - 1));
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

  void read_tensors(const json::Value& value) {
    const auto read = [&](const json::Value& tensor) { return read_tensor(tensor); };
    division_.forward = value["forward"].list(read);
    division_.backward = value["backward"].list(read);
    division_.params = value["params"].list([](const json::Value& param) {
      param.only({"name", "dtype"});
      return plan::ParamInfo{read_name(param["name"]), param["dtype"].named(parse_dtype)};
    });
    division_.values = value["values"].list([](const json::Value& given) {
      given.only({"name", "from", "hash"});
      return GivenValue{given["name"].text(), given["from"].text(), given["hash"].text()};
    });
    if (!failure_.ok()) return;
    if (division_.forward.empty() && division_.backward.empty())
      value["forward"].fail("is empty, like `backward`");
    if (const std::string fault = fault_of(division_, plan::Direction::forward); !fault.empty())
      value["forward"].fail(fault);
    if (const std::string fault = fault_of(division_, plan::Direction::backward); !fault.empty())
      value["backward"].fail(fault);
  }

  static WholeTensor read_tensor(const json::Value& value) {
    value.only({"name", "role", "dtype", "dims", "divided"});
    WholeTensor tensor{read_name(value["name"]), value["role"].named(plan::parse_tensor_role),
                       value["dtype"].named(parse_dtype), value["dims"].integers(),
                       value["divided"].named(parse_divided)};
    std::int64_t elements = 1;
    for (const std::int64_t dim : tensor.dims) {
      if (dim < 1 || dim > kMostElements / elements) {
        value["dims"].fail("are not sizes, or too large");
        return tensor;
      }
      elements *= dim;
    }
    return tensor;
  }

  void read_teams(const json::Value& value) {
    int team = 0;
    value.list([&](const json::Value& parts) {
      if (team < division_.teams()) read_parts(parts, team);
      return ++team;
    });
    if (failure_.ok() && team != division_.teams())
      value.fail(fmt::format("are {}, but must be {}", team, division_.teams()));
  }

  void read_parts(const json::Value& value, int team) {
    int stage = 0;
    value.list([&](const json::Value& part) {
      read_part(part, team, stage);
      return 0;
    });
  }

  void read_part(const json::Value& value, int team, int& stage) {
    value.only({"stage", "rows", "keys", "forward", "backward", "renamed", "numbers"});
    Part part;
    part.stage = stage = static_cast<int>(value["stage"].integer(stage, kMostStages - 1));
    part.rows = read_set(value["rows"], division_.rows);
    part.keys = read_set(value["keys"], division_.keys);
    if (part.rows.empty()) value["rows"].fail("is empty");
    if (part.keys.empty()) value["keys"].fail("is empty");
    read_renamed(value["renamed"], part);
    read_numbers(value["numbers"], part);
    const auto forward = read_plans(value["forward"], !division_.forward.empty());
    const auto backward = read_plans(value["backward"], !division_.backward.empty());
    if (!failure_.ok()) return;
    for (int group = 0; group < division_.groups_of_heads; ++group) {
      const auto at = static_cast<std::size_t>(group);
      part.forward = forward[std::min(at, forward.size() - 1)];
      part.backward = backward[std::min(at, backward.size() - 1)];
      division_.ranks[static_cast<std::size_t>(team * division_.groups_of_heads + group)]
          .parts.push_back(part);
    }
  }

  // One for all groups of heads, or one for each; "" if the direction is not compiled.
  std::vector<std::string> read_plans(const json::Value& value, bool compiled) const {
    std::vector<std::string> names = value.list(read_name);
    const auto groups = static_cast<std::size_t>(division_.groups_of_heads);
    const bool good = compiled ? names.size() == 1 || names.size() == groups : names.empty();
    if (!good) value.fail("does not name one plan, or one for each group of heads");
    if (names.empty()) names.emplace_back();
    return names;
  }

  // Tensors that the whole has.
  void read_renamed(const json::Value& value, Part& part) const {
    value.list([&](const json::Value& each) {
      each.only({"name", "in_plan"});
      const std::string name = read_name(each["name"]);
      if (!has_tensor(name) && find_carried(name) == nullptr)
        each["name"].fail("is no tensor of the attention");
      if (!part.renamed.emplace(name, read_name(each["in_plan"])).second)
        each["name"].fail("occurs twice");
      return 0;
    });
  }

  bool has_tensor(const std::string& name) const {
    return find(division_.forward, name) != nullptr || find(division_.backward, name) != nullptr;
  }

  static void read_numbers(const json::Value& value, Part& part) {
    value.list([&](const json::Value& each) {
      each.only({"name", "of"});
      const Divided of = each["of"].named(parse_divided);
      if (of == Divided::no) each["of"].fail("is neither rows nor keys");
      if (!part.numbers.emplace(read_name(each["name"]), of).second)
        each["name"].fail("occurs twice");
      return 0;
    });
  }

  json::Failure& failure_;
  Division division_;
};

Error damaged(const Error& error) {
  return plan::damaged("the plan file's ranks: " + error.message);
}

}  // namespace

Json json_of(const Division& division) {
  Json json = {{"name", json::of_text(division.name)},
               {"dtype", to_string(division.dtype)},
               {"dims",
                {{"B", division.batches},
                 {"Hq", division.query_heads},
                 {"Hkv", division.key_heads},
                 {"Sq", division.rows},
                 {"Skv", division.keys},
                 {"Dqk", division.width_qk},
                 {"Dv", division.width_v}}},
               {"sigmoid", division.sigmoid},
               {"clears_padding", division.clears_padding},
               {"groups_of_heads", division.groups_of_heads},
               {"sharding", json::of_text(division.sharding)},
               {"forward", json_of(division.forward)},
               {"backward", json_of(division.backward)},
               {"params", json_of(division.params)},
               {"values", json_of(division.values)},
               {"homes", json_of_homes(division)},
               {"teams", json_of_teams(division)},
               {"family", json::of_text(division.family)}};
  if (division.only >= 0) json["rank"] = division.only;
  return json;
}

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
                 fmt::format("there is no rank {} of {}", *rank, division.ranks.size()),
                 {},
                 {}};
  }
  add_exchanges(division, rank);
  return division;
}

}  // namespace attn::ranks
