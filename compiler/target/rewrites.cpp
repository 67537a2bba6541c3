#include "compiler/target/rewrites.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace attn::target {
namespace {

constexpr Form kForms[] = {{"warp_groups", "mma", &Rewrites::warp_groups},
                           {"short_forms", "long", &Rewrites::short_forms},
                           {"long_forms", "short", &Rewrites::long_forms}};

constexpr Rewrite kRewrites[] = {
#define ATTN_REWRITE(name, what) {#name, what, &Rewrites::name},
#include "compiler/target/rewrites.def"
#undef ATTN_REWRITE
};

}  // namespace

std::span<const Rewrite> rewrites() { return kRewrites; }
std::span<const Form> forms() { return kForms; }

std::vector<std::string> without(const Rewrites& rewrites) {
  std::vector<std::string> names;
  for (const Rewrite& rewrite : kRewrites) {
    if (!(rewrites.*rewrite.made)) names.emplace_back(rewrite.name);
  }
  for (const Form& form : kForms) {
    if (!(rewrites.*form.may)) names.emplace_back(form.name);
  }
  return names;
}

Rewrites all_but(const std::vector<std::string>& names, Rewrites rewrites) {
  for (const Rewrite& rewrite : kRewrites) {
    if (std::ranges::find(names, rewrite.name) != names.end()) rewrites.*rewrite.made = false;
  }
  for (const Form& form : kForms) {
    if (std::ranges::find(names, form.name) != names.end()) rewrites.*form.may = false;
  }
  return rewrites;
}

Rewrites without(std::string_view name, Rewrites others) {
  const auto* found = std::ranges::find(kRewrites, name, &Rewrite::name);
  ATTN_CHECK(found != std::end(kRewrites), "unknown rewrite");
  others.*found->made = false;
  return others;
}

}  // namespace attn::target
