#include <fmt/core.h>

#include "compiler/engines/cudnn/strategies.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/own_kernels.h"
#include "compiler/engines/shared/quantized.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/target/capabilities.h"

namespace attn::engines {
namespace {

Status check_softmax(const Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (attention.is_softmax()) return {};
  return unsupported(
      attention.normalize_pos,
      fmt::format("cuDNN's fused kernels compute softmax, not {}",
                  attention.is_sigmoid() ? "sigmoid" : "other weights"),
      own_kernels_note(subject.context(),
                       attention.quotient ? "attnc's own kernels do, from compute capability 8.0 on"
                                          : "`--allow-unfused` computes both directions"));
}

// Nothing of cuDNN's comes between the sum over keys and what is stored.
Status check_epilogue(const Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (!attention.epilogue) return {};
  return unsupported(attention.epilogue_pos,
                     attention.branch.empty()
                         ? "cuDNN's fused kernels store o without an epilogue"
                         : "cuDNN's fused kernels store o as it is, and combine no branches",
                     own_kernels_note(subject.context(),
                                      "attnc's own kernels do, from compute capability 8.0 on"));
}

// The fused engine matches delta as a sum of do * o, to which nothing is added.
Status check_gradient_of_lse(const Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (!subject.context().backward() || !attention.reads_d_lse) return {};
  const bool own = are_own_kernels_for(subject.context());
  return unsupported(attention.d_lse_pos,
                     "cuDNN's fused kernels compute no gradients through `lse`",
                     own ? "`--engine native` does, or leave `lse` out of `grad`"
                         : "`--allow-unfused` does, or leave `lse` out of `grad`");
}

Status check_quantized_gradients(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_scales_of_gradients(attention));
  for (const std::string& name : attention.gradients) {
    if (!attention.find_tensor(name)) continue;
    return unsupported(attention.find_tensor(name)->pos,
                       fmt::format("8-bit kernels compute no gradient of `{}`", name),
                       "only those of q, k and v");
  }
  return {};
}

Status check_scales(const Subject& subject) {
  const ir::Attention& attention = subject.attention();
  if (subject.context().backward()) ATTN_RETURN_IF_ERROR(check_quantized_gradients(attention));
  if (attention.is_mxfp8()) return check_blocks(attention, subject.context());
  const bool can = target::can(target::Capability::fp8_attention, subject.context());
  if (can) return {};
  const std::int64_t sm = subject.context().gpu.sm;
  return unsupported(
      attention.quantize->pos,
      sm < 90 ? "cuDNN computes 8-bit attention on compute capability 9.0 and from 10.0 on"
              : fmt::format("cuDNN has no 8-bit attention for compute capability {}.{}", sm / 10,
                            sm % 10),
      "use `dtype bf16;` without `quantize`");
}

// Refuses scales in all strategies but `composite`, the only one that knows them.
Status check_quantize(Subject& subject, std::string_view strategy) {
  const ir::Attention& attention = subject.attention();
  if (attention.cache) {
    return unsupported(attention.cache->pos,
                       "cuDNN's fused kernels take q, k and v of one type, and these are keys and "
                       "values of 8 bits",
                       "`--engine native` widens them, or use `dtype bf16;` "
                       "without `quantize`");
  }
  if (!attention.quantize) return {};
  if (strategy == "composite") return check_scales(subject);
  const bool is_served = check_scales(subject).ok() && strategy::composite::lower(subject).ok();
  return unsupported(attention.quantize->pos,
                     fmt::format("`{}` computes no 8-bit attention", strategy),
                     is_served ? "`--strategy composite` does" : "");
}

// `kOf`, a strategy's bound or lower, for attentions that cuDNN knows.
template <auto kOf, const char* kName>
auto checked(Subject& subject) -> decltype(kOf(subject)) {
  ATTN_RETURN_IF_ERROR(check_epilogue(subject));
  ATTN_RETURN_IF_ERROR(check_softmax(subject));
  ATTN_RETURN_IF_ERROR(check_gradient_of_lse(subject));
  ATTN_RETURN_IF_ERROR(check_quantize(subject, kName));
  return kOf(subject);
}

#define ATTN_STRATEGY(name, kind, what) constexpr char k_##name[] = #name;
#include "compiler/engines/cudnn/strategies.def"

}  // namespace

namespace engine {

std::span<const Strategy> cudnn() {
  static constexpr Strategy kStrategies[] = {
#define ATTN_STRATEGY(name, kind, what)                                         \
  {#name, what, Strategy::Kind::kind, checked<strategy::name::bound, k_##name>, \
   checked<strategy::name::lower, k_##name>},
#include "compiler/engines/cudnn/strategies.def"
  };
  return kStrategies;
}

}  // namespace engine

}  // namespace attn::engines
