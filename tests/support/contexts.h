// Planning contexts of an H200.
#pragma once

#include "compiler/planning/context.h"

namespace attn::testing {

inline planning::Context in(bool backward, planning::Rewrites made = {}) {
  return {.direction = backward ? plan::Direction::backward : plan::Direction::forward,
          .rewrites = made};
}

}  // namespace attn::testing
