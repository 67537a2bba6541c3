// Which of the rewrites (rewrites.def) are made.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace attn::planning {

// Bytes that the scores of a backward that keeps them may take; beyond, rows are done in tiles.
inline constexpr std::int64_t kMostScoreBytes = std::int64_t{1} << 30;

// All, unless one is switched off.
struct Rewrites {
#define ATTN_REWRITE(name, what) bool name = true;
#include "compiler/planning/rewrites.def"
#undef ATTN_REWRITE

  std::int64_t score_bytes = kMostScoreBytes;  // 1 or more; that of tests is small

  bool operator==(const Rewrites&) const = default;
};

struct Rewrite {
  std::string_view name;
  std::string_view what;  // for people, on one line
  bool Rewrites::*made;
};

// In order. They live as long as the program.
std::span<const Rewrite> rewrites();

// All but the one of this name, which must be known.
Rewrites without(std::string_view name, Rewrites others = {});

}  // namespace attn::planning
