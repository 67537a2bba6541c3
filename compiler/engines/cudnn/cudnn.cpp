#include "compiler/engines/cudnn/strategies.h"

namespace attn::engines {

std::span<const Strategy> engine::cudnn() {
  static constexpr Strategy kStrategies[] = {
#define ATTN_STRATEGY(name, kind, what) \
  {#name, what, Strategy::Kind::kind, strategy::name::bound, strategy::name::lower},
#include "compiler/engines/cudnn/strategies.def"
  };
  return kStrategies;
}

}  // namespace attn::engines
