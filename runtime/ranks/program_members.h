// The members of divisions, as JSON has them (runtime/graph/members.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/plan/program_members.h"
#include "runtime/ranks/program.h"

namespace attn::ranks {

std::string_view to_string(Divided divided);
std::optional<Divided> parse_divided(std::string_view text);

// A part as the file has it: for all groups of heads of a team.
struct TeamPart {
  int stage = 0;
  Intervals rows, keys;
  std::vector<std::string> forward, backward;  // one name for all groups, or one for each
  std::map<std::string, std::string> renamed;
  std::map<std::string, Divided> numbers;
};

std::vector<std::vector<TeamPart>> teams_of(const Division& division);

}  // namespace attn::ranks

namespace attn::json {

template <>
inline constexpr auto kParse<ranks::Divided> = &ranks::parse_divided;
template <>
inline constexpr bool kIsListOfIntervals<ranks::Intervals> = true;

}  // namespace attn::json

namespace attn::ranks {

inline constexpr std::int64_t kMostSize = std::int64_t{1} << 31;      // of a dimension
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 48;  // of a tensor
inline constexpr std::int64_t kMostStages = 1024;

inline bool are_sizes(const std::vector<std::int64_t>& dims) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 1 || dim > kMostElements / elements) return false;
    elements *= dim;
  }
  return true;
}

template <json::Like<WholeTensor> Self, typename Visit>
void members(Self& tensor, Visit& visit) {
  auto& [name, role, dtype, dims, divided] = tensor;
  visit("name", name);
  visit.must("name", !name.empty(), "is empty");
  visit("role", role);
  visit("dtype", dtype);
  visit("dims", dims);
  visit.must("dims", are_sizes(dims), "are not sizes, or too large");
  visit("divided", divided);
}

template <json::Like<GivenValue> Self, typename Visit>
void members(Self& value, Visit& visit) {
  auto& [name, from, hash] = value;
  visit("name", name);
  visit("from", from);
  visit("hash", hash);
}

template <json::Like<TeamPart> Self, typename Visit>
void members(Self& part, Visit& visit) {
  auto& [stage, rows, keys, forward, backward, renamed, numbers] = part;
  visit.within("stage", stage, 0, kMostStages - 1);
  visit("rows", rows);
  visit("keys", keys);
  visit("forward", forward);
  visit("backward", backward);
  visit.map("renamed", renamed, "name", "in_plan");
  visit.map("numbers", numbers, "name", "of");
}

// What is at home on a rank; the rest follows from the division.
template <json::Like<Program> Self, typename Visit>
void members(Self& program, Visit& visit) {
  visit("rows", program.rows);
  visit("keys", program.keys);
}

template <json::Like<Division> Self, typename Visit>
void members(Self& division, Visit& visit) {
  auto& [name, dtype, batches, query_heads, key_heads, rows, keys, width_qk, width_v, sigmoid,
         clears_padding, groups_of_heads, sharding, forward, backward, params, values, ranks, only,
         family] = division;
  visit("name", name);
  visit.must("name", !name.empty(), "is empty");
  visit("dtype", dtype);
  visit.object("dims", [&division](auto& inner) {
    inner.within("B", division.batches, 1, kMostSize);
    inner.within("Hq", division.query_heads, 1, kMostSize);
    inner.within("Hkv", division.key_heads, 1, kMostSize);
    inner.within("Sq", division.rows, 1, kMostSize);
    inner.within("Skv", division.keys, 1, kMostSize);
    inner.within("Dqk", division.width_qk, 1, kMostSize);
    inner.within("Dv", division.width_v, 1, kMostSize);
  });
  visit("sigmoid", sigmoid);
  visit("clears_padding", clears_padding);
  visit.within("groups_of_heads", groups_of_heads, 1, kMostRanks);
  visit("sharding", sharding);
  visit("forward", forward);
  visit("backward", backward);
  visit("params", params);
  visit("values", values);
  visit("homes", ranks);
  visit.derived("teams", [&division] { return json::json_of(teams_of(division)); });
  visit("family", family);
  visit.optional("rank", only, -1);
}

}  // namespace attn::ranks
