#include "compiler/sharding/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "compiler/sharding/draws.h"
#include "runtime/base/check.h"

namespace attn::sharding {
namespace {

// More runs of adjacent rows than this are one part: a kernel for each would be too many.
constexpr std::size_t kMostRuns = 16;
// Pieces that the rows, or the keys, of a part are cut into. So parts of more than 2M keys of 128
// elements have pieces that are larger than the cache. Not more, because parts grow with the square
// of the pieces: 64 by 64 would be 4,096 parts of each rank in the file, of each sharding that is
// estimated while one is chosen, and as many results to merge; and each block of the work map, of
// which there are 2,048, has more keys then.
constexpr std::size_t kMostCuts = 16;

// Share of the work with own keys that is left for the end: what is sent then is often twice as
// large as what arrives beside the rest. It is less at the end of a run of rows, which then needs
// no cut.
constexpr double kShareOfLast = 0.25, kLeastShareOfLast = 0.15;

Intervals of_blocks(const Blocks& blocks, const Numbers& numbers) {
  Intervals set;
  for (const std::int64_t number : numbers) append(set, blocks.of(number));
  return set;
}

// What the ranks of a team have at home, see and compute.
class TeamWork {
 public:
  TeamWork(const Sharding& sharding, int team, const WorkMap& map)
      : sharding_(sharding), team_(team), map_(map) {}

 protected:
  // The team's own rows that travel, or that do not.
  Numbers own(const Dealing& dealing, bool travelling) const {
    Numbers numbers = own(dealing);
    std::erase_if(numbers,
                  [&](std::int64_t row) { return sharding_.row_travels(row) != travelling; });
    return numbers;
  }

  Numbers own(const Dealing& dealing) const {
    Numbers numbers;
    for (std::size_t block = 0; block < dealing.owners.size(); ++block) {
      if (sharding_.team_of(dealing.owners[block]) == team_)
        numbers.push_back(static_cast<std::int64_t>(block));
    }
    return numbers;
  }

  // What is at home in teams whose turn it is.
  Numbers at_home(const Dealing& dealing, int stage) const {
    Numbers numbers;
    for (std::size_t block = 0; block < dealing.owners.size(); ++block) {
      const int home = sharding_.team_of(dealing.owners[block]);
      if (sharding_.stage_of(team_, home) == stage)
        numbers.push_back(static_cast<std::int64_t>(block));
    }
    return numbers;
  }

  // Adjacent rows together, or all of them where they have too many gaps.
  static std::vector<Numbers> runs(const Numbers& rows) {
    std::vector<Numbers> runs;
    for (const std::int64_t row : rows) {
      if (runs.empty() || runs.back().back() + 1 != row) runs.emplace_back();
      runs.back().push_back(row);
    }
    return runs.size() > kMostRuns ? std::vector<Numbers>{rows} : runs;
  }

  // Few rows (or keys) are at the same keys (or rows).
  bool may_be_cut(const Numbers& numbers, const Blocks& blocks) const {
    constexpr std::int64_t kFew = 16;
    return sharding_.most_seen > 0 &&
           static_cast<std::int64_t>(numbers.size()) * blocks.unit * kFew > sharding_.most_seen;
  }

  // Number of pieces of rows such that no key is seen by too many of a piece on average.
  std::size_t pieces_of_rows(const Numbers& rows, const Numbers& keys) const {
    const Numbers seen = seen_by(rows, keys);
    if (seen.empty()) return 1;
    return pieces_of(rows, map_.rows, work(rows, seen) / static_cast<double>(seen.size()));
  }

  std::size_t pieces_of_keys(const Numbers& rows, const Numbers& seen) const {
    return pieces_of(seen, map_.keys, work(rows, seen) / static_cast<double>(rows.size()));
  }

  // If so many of these blocks meet one of the others, on average.
  std::size_t pieces_of(const Numbers& numbers, const Blocks& blocks, double mean) const {
    const auto most = static_cast<double>(sharding_.most_seen) / static_cast<double>(blocks.unit);
    if (mean <= most) return 1;
    const auto many = std::ceil(static_cast<double>(numbers.size()) / most);
    return std::min({static_cast<std::size_t>(std::min(many, 1e9)), numbers.size(), kMostCuts});
  }

  static std::vector<Numbers> pieces(const Numbers& numbers, std::size_t count) {
    std::vector<Numbers> pieces;
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = [&](std::size_t piece) {
        return numbers.begin() + static_cast<std::ptrdiff_t>(piece * numbers.size() / count);
      };
      pieces.emplace_back(at(i), at(i + 1));
    }
    return pieces;
  }

  double work(const Numbers& rows, const Numbers& keys) const {
    double sum = 0;
    for (const std::int64_t row : rows) {
      for (const std::int64_t key : keys) sum += map_.at(row, key);
    }
    return sum;
  }

  Numbers seen_by(const Numbers& rows, const Numbers& keys) const {
    Numbers seen;
    for (const std::int64_t key : keys) {
      const auto sees = [&](std::int64_t row) { return map_.at(row, key) > 0; };
      if (std::ranges::any_of(rows, sees)) seen.push_back(key);
    }
    return seen;
  }

  // How many of the rows, from the first one on, meet the own keys last.
  std::ptrdiff_t count_of_last(const Numbers& rows, const Numbers& keys) const {
    const double all = work(rows, keys);
    double share = 0;
    for (auto row = rows.begin(); row != rows.end(); ++row) {
      share += work({*row}, keys) / all;
      const bool ends_run = row + 1 == rows.end() || row[1] != *row + 1;
      if (share >= (ends_run ? kLeastShareOfLast : kShareOfLast)) return row + 1 - rows.begin();
    }
    return 0;
  }

  const Sharding& sharding_;
  const int team_;
  const WorkMap& map_;
};

class Team : private TeamWork {
 public:
  Team(const Sharding& sharding, int team, const WorkMap& map, bool has_sink)
      : TeamWork(sharding, team, map), has_sink_(has_sink) {}

  std::vector<Part> run() {
    if (sharding_.rows_wait) {
      add_waiting();
    } else {
      add_stages();
    }
    return std::move(parts_);
  }

 private:
  void add_stages() {
    const Numbers rows = own(sharding_.rows, false), keys = own(sharding_.keys);
    const auto first = rows.begin() + (sharding_.own_last ? count_of_last(rows, keys) : 0);
    add_runs(0, {first, rows.end()}, at_home(sharding_.keys, 0));
    add_travellers(0);
    for (int stage = 1; stage < sharding_.stages_of_arrivals(); ++stage) {
      add_runs(stage, rows, at_home(sharding_.keys, stage));
      add_travellers(stage);
    }
    add_runs(sharding_.stages() - 1, {rows.begin(), first}, keys);
  }

  void add_waiting() {
    const Numbers keys = own(sharding_.keys), others = at_home(sharding_.keys, 1);
    Numbers ready, waiting;
    for (const std::int64_t row : own(sharding_.rows, false))
      (work({row}, others) > 0 ? waiting : ready).push_back(row);
    Numbers all;
    std::ranges::merge(keys, others, std::back_inserter(all));
    add_runs(0, ready, keys);
    add_travellers(0);
    add_runs(1, waiting, all);
    add_travellers(1);
  }

  // Rows at home, whose sink is computed with their own keys.
  void add_runs(int stage, const Numbers& rows, const Numbers& keys) {
    const bool with_own_keys = stage == 0 || sharding_.is_own_last(stage) || sharding_.rows_wait;
    for (const Numbers& run : runs(rows)) add_cut(stage, run, keys, with_own_keys);
  }

  // Rows that have come, with the team's own keys. Each row's sink stays at home.
  void add_travellers(int stage) {
    const Numbers keys = own(sharding_.keys);
    if (stage == 0) add(stage, own(sharding_.rows, true), keys, true);
    Numbers come;
    for (const std::int64_t row : at_home(sharding_.rows, stage)) {
      const int home = sharding_.rows.owners[static_cast<std::size_t>(row)];
      if (sharding_.row_travels(row) && sharding_.team_of(home) != team_) come.push_back(row);
    }
    add(stage, come, keys, false);
  }

  // Adds rows and keys as one part, or as several whose rows see less, and whose keys are seen by
  // fewer.
  void add_cut(int stage, const Numbers& rows, const Numbers& keys, bool at_home) {
    if (!may_be_cut(rows, map_.rows) || !may_be_cut(keys, map_.keys))
      return add(stage, rows, keys, at_home);
    for (const Numbers& own : pieces(rows, pieces_of_rows(rows, keys))) {
      const Numbers seen = seen_by(own, keys);
      const std::size_t count = pieces_of_keys(own, seen);
      bool has_sink = at_home;
      for (const Numbers& part : pieces(count > 1 && !map_.draws ? seen : keys, count)) {
        add(stage, own, part, has_sink);
        has_sink = false;
      }
    }
  }

  void add(int stage, const Numbers& rows, const Numbers& keys, bool at_home) {
    // A sink counts for rows that see nothing, too.
    const bool sink = has_sink_ && at_home;
    Part part;
    part.stage = stage;
    part.sink = sink;
    Numbers seen;
    std::vector<double> of_keys(static_cast<std::size_t>(map_.keys.count()));
    for (const std::int64_t row : rows) {
      double work = 0;
      for (const std::int64_t key : keys) {
        const float share = map_.at(row, key);
        work += share;
        of_keys[static_cast<std::size_t>(key)] += share;
      }
      if (work > 0 || sink) append(part.rows, map_.rows.of(row));
      part.work += work;
      part.longest = std::max(part.longest, work);
    }
    for (const std::int64_t key : keys) {
      if (of_keys[static_cast<std::size_t>(key)] > 0) seen.push_back(key);
    }
    if (!of_keys.empty()) part.longest_of_keys = *std::ranges::max_element(of_keys);
    if (map_.draws) {
      seen = drawn_keys(seen, keys, map_.keys.unit);
      if (part.rows.size() > kMostPieces) part.rows = of_blocks(map_.rows, rows);
    }
    part.keys = of_blocks(map_.keys, seen);
    if (part.rows.empty()) return;
    if (part.keys.empty()) {
      ATTN_CHECK(!keys.empty(), "a sink without keys at home");
      append(part.keys, map_.keys.of(keys.front()));  // none of them is seen
    }
    if (std::max(part.rows.size(), part.keys.size()) > kMostPieces) compute_all(part);
    parts_.push_back(std::move(part));
  }

  void compute_all(Part& part) const {
    part.longest = static_cast<double>(count(part.keys)) / static_cast<double>(map_.keys.unit);
    part.longest_of_keys =
        static_cast<double>(count(part.rows)) / static_cast<double>(map_.rows.unit);
    part.work = part.longest * part.longest_of_keys;
  }

  const bool has_sink_;
  std::vector<Part> parts_;
};

}  // namespace

int Sharding::stage_of(int team, int home) const {
  if (arrivals == 0 || team == home) return 0;
  const int distance = (home - team + teams()) % teams();
  return 1 + (distance - 1) * arrivals / (teams() - 1);
}

Interval Sharding::key_heads(int rank, const ir::Attention& attention) const {
  const std::int64_t heads = attention.dims[ir::Dim::Hkv] / groups;
  const std::int64_t group = rank % groups;
  return {group * heads, (group + 1) * heads};
}

std::string Sharding::to_text() const {
  std::string text = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  if (groups > 1) text += fmt::format(", {} groups of heads", groups);
  const auto heavy = std::ranges::count(travels, true);
  const auto add_heavy = [&](std::string_view how) {
    if (heavy > 0)
      text += fmt::format(", heavy rows {} ({} block{})", how, heavy, heavy == 1 ? "" : "s");
  };
  if (teams() == 1) {
    add_heavy("apart");
    return text;
  }
  const Dealing& dealt = rows_travel ? keys : rows;
  text += fmt::format(", {} {}", rows_travel ? "keys" : "rows", dealt.name);
  const std::string_view traveller = rows_travel ? "rows" : "keys";
  add_heavy("travel");
  if (arrivals == 0) return text + fmt::format(", {} arrive before the first part", traveller);
  if (rows_wait) return text + ", keys arrive before rows that need them";
  text += fmt::format(", {} arrive in {} stage{}", traveller, arrivals, arrivals == 1 ? "" : "s");
  return text + (own_last ? ", some rows meet own ones last" : "");
}

Error in_part(const ranks::Part& part, Error error) {
  error.message = fmt::format("rows {}, keys {}: {}", ranks::to_text(part.rows),
                              ranks::to_text(part.keys), error.message);
  return error;
}

std::vector<Part> parts_of(const Sharding& sharding, int team, const WorkMap& map, bool has_sink) {
  return Team(sharding, team, map, has_sink).run();
}

}  // namespace attn::sharding
