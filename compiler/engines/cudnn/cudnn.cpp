#include <fmt/core.h>

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

// Of the strategies, `composite` alone knows scales.
Status check_quantize(const Subject& subject, std::string_view strategy) {
  const ir::Attention& attention = subject.attention();
  if (!attention.quantize) return {};
  if (strategy != "composite") {
    return lowering::unsupported(attention.quantize->pos,
                                 fmt::format("`{}` computes no 8-bit attention", strategy),
                                 "`--lowering composite` may");
  }
  if (subject.context().backward()) {
    return lowering::unsupported(attention.quantize->pos,
                                 "the gradients of 8-bit attention are not implemented yet");
  }
  const bool can = planning::can(planning::Capability::fp8_attention, subject.context());
  if (can) return {};
  return lowering::unsupported(
      attention.quantize->pos,
      "cuDNN computes 8-bit attention on compute capability 9.0 and from 10.0 on",
      "use `dtype bf16;` without `quantize`");
}

// `kOf`, a strategy's bound or lower, for attentions that cuDNN knows.
template <auto kOf, const char* kName>
auto checked(Subject& subject) -> decltype(kOf(subject)) {
  ATTN_RETURN_IF_ERROR(check_softmax(subject));
  ATTN_RETURN_IF_ERROR(check_quantize(subject, kName));
  return kOf(subject);
}

#define ATTN_STRATEGY(name, kind, what) constexpr char k_##name[] = #name;
#include "compiler/engines/cudnn/strategies.def"

}  // namespace

std::span<const Strategy> engine::cudnn() {
  static constexpr Strategy kStrategies[] = {
#define ATTN_STRATEGY(name, kind, what)                                         \
  {#name, what, Strategy::Kind::kind, checked<strategy::name::bound, k_##name>, \
   checked<strategy::name::lower, k_##name>},
#include "compiler/engines/cudnn/strategies.def"
  };
  return kStrategies;
}

}  // namespace attn::engines
