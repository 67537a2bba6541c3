#include "compiler/planning/rewrites.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace attn::planning {
namespace {

constexpr Rewrite kRewrites[] = {
#define ATTN_REWRITE(name, what) {#name, what, &Rewrites::name},
#include "compiler/planning/rewrites.def"
#undef ATTN_REWRITE
};

}  // namespace

std::span<const Rewrite> rewrites() { return kRewrites; }

Rewrites without(std::string_view name, Rewrites others) {
  const auto* found = std::ranges::find(kRewrites, name, &Rewrite::name);
  ATTN_CHECK(found != std::end(kRewrites), "unknown rewrite");
  others.*found->made = false;
  return others;
}

}  // namespace attn::planning
