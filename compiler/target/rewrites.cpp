#include "compiler/target/rewrites.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace attn::target {
namespace {

constexpr std::string_view kWarpGroups = "warp_groups";

constexpr Rewrite kRewrites[] = {
#define ATTN_REWRITE(name, what) {#name, what, &Rewrites::name},
#include "compiler/target/rewrites.def"
#undef ATTN_REWRITE
};

}  // namespace

std::span<const Rewrite> rewrites() { return kRewrites; }

std::vector<std::string> without(const Rewrites& rewrites) {
  std::vector<std::string> names;
  for (const Rewrite& rewrite : kRewrites) {
    if (!(rewrites.*rewrite.made)) names.emplace_back(rewrite.name);
  }
  if (!rewrites.warp_groups) names.emplace_back(kWarpGroups);
  return names;
}

Rewrites all_but(const std::vector<std::string>& names, Rewrites rewrites) {
  for (const Rewrite& rewrite : kRewrites) {
    if (std::ranges::find(names, rewrite.name) != names.end()) rewrites.*rewrite.made = false;
  }
  if (std::ranges::find(names, kWarpGroups) != names.end()) rewrites.warp_groups = false;
  return rewrites;
}

Rewrites without(std::string_view name, Rewrites others) {
  const auto* found = std::ranges::find(kRewrites, name, &Rewrite::name);
  ATTN_CHECK(found != std::end(kRewrites), "unknown rewrite");
  others.*found->made = false;
  return others;
}

}  // namespace attn::target
