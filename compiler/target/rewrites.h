// The rewrites (rewrites.def), and which of them are enabled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::target {

// Most bytes of scores that a backward keeps; beyond that, rows are done in tiles.
inline constexpr std::int64_t kMostScoreBytes = std::int64_t{1} << 30;

// All are enabled by default.
struct Rewrites {
#define ATTN_REWRITE(name, what) bool name = true;
#include "compiler/target/rewrites.def"
#undef ATTN_REWRITE

  // Whether attnc's kernels may use products of warp groups. Otherwise they are those that every
  // GPU since compute capability 8.0 runs (--skeleton). Told among the names of what is disabled.
  bool warp_groups = true;
  // Whether they may be backwards of one launch over few keys, and whether they may be others
  // (--skeleton). Told likewise.
  bool short_forms = true, long_forms = true;

  std::int64_t score_bytes = kMostScoreBytes;  // 1 or more; tests use a small one

  bool operator==(const Rewrites&) const = default;
};

struct Rewrite {
  std::string_view name;
  std::string_view what;  // a description, on one line
  bool Rewrites::*made;
};

// All rewrites, in order. Static lifetime.
std::span<const Rewrite> rewrites();

// Forms of attnc's kernels, which may be disabled likewise.
struct Form {
  std::string_view name;
  std::string_view skeleton;  // of --skeleton, which leaves the form out
  bool Rewrites::*may;
};
// All of them, in order. Static lifetime.
std::span<const Form> forms();

// The names of those that are disabled; and `rewrites` without those of these names (unknown names
// are ignored).
std::vector<std::string> without(const Rewrites& rewrites);
Rewrites all_but(const std::vector<std::string>& names, Rewrites rewrites = {});

// `others` without the rewrite of this name, which must exist.
Rewrites without(std::string_view name, Rewrites others = {});

}  // namespace attn::target
