// Planning contexts of an H200.
#pragma once

#include "compiler/target/context.h"

namespace attn::testing {

inline target::Context in(bool backward, target::Rewrites made = {}) {
  return {.direction = backward ? plan::Direction::backward : plan::Direction::forward,
          .rewrites = made};
}

}  // namespace attn::testing
