#include "compiler/engines/cudnn/strategies.h"
#include "compiler/lowering/common/unsupported.h"

namespace attn::engines {
namespace {

Status check_softmax(const ir::Attention& attention) {
  if (!attention.is_sigmoid()) return {};
  return lowering::unsupported(attention.normalize_pos,
                               "cuDNN's fused kernels compute softmax, not sigmoid",
                               "`--engine native` computes a forward, `--allow-unfused` both "
                               "directions");
}

// `kOf`, a strategy's bound or lower, for attentions that cuDNN knows.
template <auto kOf>
auto checked(Subject& subject) -> decltype(kOf(subject)) {
  ATTN_RETURN_IF_ERROR(check_softmax(subject.attention()));
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
