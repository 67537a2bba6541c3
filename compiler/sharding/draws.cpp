#include "compiler/sharding/draws.h"

#include <algorithm>
#include <set>

#include "compiler/ir/random_dropout.h"
#include "compiler/sharding/part_attention.h"

namespace attn::sharding {
namespace {

using ir::kDrawnKeys;

// Blocks that are drawn together with a block that is seen.
Numbers whole_draws(const Numbers& seen, const Numbers& keys, std::int64_t unit) {
  if (unit % kDrawnKeys == 0) return seen;
  const auto draw = [unit](std::int64_t key) { return key * unit / kDrawnKeys; };
  std::set<std::int64_t> draws;
  for (const std::int64_t key : seen) draws.insert(draw(key));
  Numbers all = keys;
  std::erase_if(all, [&](std::int64_t key) { return !draws.contains(draw(key)); });
  return all;
}

// The blocks between the widest gaps that a part may have.
Intervals pieces_of(const Numbers& numbers) {
  std::vector<Interval> gaps;
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i - 1] + 1 < numbers[i]) gaps.push_back({numbers[i - 1] + 1, numbers[i]});
  }
  std::ranges::stable_sort(gaps, std::ranges::greater(), &Interval::size);
  if (gaps.size() >= kMostPieces) gaps.resize(kMostPieces - 1);
  std::ranges::sort(gaps, {}, &Interval::begin);
  Intervals pieces;
  std::int64_t begin = numbers.front();
  for (const Interval& gap : gaps) {
    pieces.push_back({begin, gap.begin});
    begin = gap.end;
  }
  pieces.push_back({begin, numbers.back() + 1});
  return pieces;
}

}  // namespace

Numbers drawn_keys(const Numbers& seen, const Numbers& keys, std::int64_t unit) {
  if (seen.empty()) return seen;
  const Intervals pieces = pieces_of(whole_draws(seen, keys, unit));
  Numbers all = keys;
  std::erase_if(all, [&](std::int64_t key) {
    return std::ranges::none_of(
        pieces, [&](const Interval& piece) { return piece.begin <= key && key < piece.end; });
  });
  return all;
}

bool draws_by_32(const ranks::Part& part) {
  if (std::max(part.rows.size(), part.keys.size()) > kMostPieces) return false;
  std::int64_t place = 0;
  return std::ranges::all_of(part.keys, [&](const Interval& piece) {
    const bool keeps = place % kDrawnKeys == 0 && piece.begin % kDrawnKeys == 0;
    place += piece.size();
    return keeps;
  });
}

Status check_draws(const Sharding& sharding, const WorkMap& map, const ir::Attention& attention) {
  if (!attention.is_random()) return {};
  for (int team = 0; team < sharding.teams(); ++team) {
    for (const Part& part : parts_of(sharding, team, map, attention.sink.has_value())) {
      if (draws_by_32(part)) continue;
      const Interval heads = sharding.key_heads(team * sharding.groups, attention);
      const Status drawn = ir::check_draws_by_32(part_attention(attention, part, heads).attention);
      if (!drawn.ok()) return in_part(part, drawn.error());
    }
  }
  return {};
}

}  // namespace attn::sharding
