// The strategies of cuDNN's engine. Internal to compiler/engines/cudnn.
#pragma once

#include "compiler/engines/shared/strategy.h"

namespace attn::engines::strategy {

#define ATTN_STRATEGY(name, kind, what)    \
  namespace name {                         \
  Result<double> bound(Subject& subject);  \
  Result<Lowered> lower(Subject& subject); \
  }
#include "compiler/engines/cudnn/strategies.def"

}  // namespace attn::engines::strategy
