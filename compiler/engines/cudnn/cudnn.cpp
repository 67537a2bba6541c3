#include "compiler/engines/cudnn/strategies.h"
#include "compiler/lowering/common/unsupported.h"
#include "compiler/planning/capabilities.h"

namespace attn::engines {
namespace {

Status check_softmax(const Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (!attention.is_sigmoid()) return {};
  const bool own = planning::can(planning::Capability::warp_group_products, subject.context());
  return lowering::unsupported(attention.normalize_pos,
                               "cuDNN's fused kernels compute softmax, not sigmoid",
                               own ? "`--engine native` computes both directions"
                                   : "`--allow-unfused` computes both directions");
}

// `kOf`, a strategy's bound or lower, for attentions that cuDNN knows.
template <auto kOf>
auto checked(Subject& subject) -> decltype(kOf(subject)) {
  ATTN_RETURN_IF_ERROR(check_softmax(subject));
  return kOf(subject);
}

}  // namespace

std::span<const Strategy> engine::cudnn() {
  static constexpr Strategy kStrategies[] = {
#define ATTN_STRATEGY(name, kind, what)                               \
  {#name, what, Strategy::Kind::kind, checked<strategy::name::bound>, \
   checked<strategy::name::lower>},
#include "compiler/engines/cudnn/strategies.def"
  };
  return kStrategies;
}

}  // namespace attn::engines
