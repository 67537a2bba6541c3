// Which of the rewrites (rewrites.def) are made.
#pragma once

#include <span>
#include <string_view>

namespace attn::passes {

// All, unless one is switched off.
struct Rewrites {
#define ATTN_REWRITE(name, what) bool name = true;
#include "compiler/passes/rewrites.def"
#undef ATTN_REWRITE

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

}  // namespace attn::passes
