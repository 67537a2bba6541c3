#include "compiler/engines/native/narrow_backward.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/engines/native/expression_text.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

constexpr std::int64_t kAligned = plan::kInternalAlignment / 2;  // elements

// Scales that no kernel here reads: weights and their gradients are not rounded to 8 bits, and o
// was.
constexpr std::string_view kUnread[] = {"scale_s", "descale_s", "scale_dp", "descale_dp",
                                        "scale_o"};

bool has_scale(const ir::Attention& attention, std::string_view name) {
  const auto* scale = std::ranges::find(ir::kScales, name, &ir::Scale::name);
  return attention.has(*scale);
}

std::string value_of_scale(const ir::Attention& attention, const std::string& name) {
  return has_scale(attention, name) ? "*t_" + name : "1.0f";
}

std::string method_of(const char* name, const std::string& value) {
  return fmt::format("  __device__ float {}() const {{ return {}; }}\n", name, value);
}

// With a descale_v of 0 the forward's o is 0, and so are deltas.
std::string delta_factor(const ir::Attention& attention) {
  const std::string of_o = value_of_scale(attention, "descale_o");
  if (!has_scale(attention, "descale_v")) return of_o;
  return "*t_descale_v == 0 ? 0.0f : " + of_o + " / *t_descale_v";
}

std::int64_t elements(const ir::Attention& attention, const std::string& name) {
  std::int64_t all = 1;
  for (const std::int64_t dim : logical_dims(attention, name)) all *= dim;
  return ceil_div(all, kAligned) * kAligned;
}

}  // namespace

Status check_narrow_backward(const ir::Attention& attention) {
  if (attention.is_mxfp8()) {
    return unsupported(attention.quantize->pos, "attnc's kernels have no scales of blocks",
                       "`quantize per_tensor;` works");
  }
  return check_scales_of_gradients(attention);
}

ir::Attention with_wide_rows(const ir::Attention& attention) {
  ir::Attention wide = attention;
  wide.quantize.reset();
  wide.dtype = DType::bf16;
  for (auto& [name, layout] : wide.layouts) {
    const bool packed = layout.kind == ir::LayoutKind::thd;
    layout = {.kind = packed ? ir::LayoutKind::thd : ir::LayoutKind::bhsd};
  }
  return wide;
}

plan::TensorOperand wide_rows(const ir::Attention& attention, const std::string& name) {
  plan::TensorOperand rows{.name = kRowsTensor};
  for (const char* before : kWidened) {
    if (before == name) break;
    rows.offset += elements(attention, before);
  }
  return rows;
}

std::int64_t elements_of_wide_rows(const ir::Attention& attention) {
  std::int64_t all = 0;
  for (const char* name : kWidened) all += elements(attention, name);
  return all;
}

double bytes_of_widening(const ir::Attention& attention) {
  const auto of = [&](const char* name) { return static_cast<double>(elements(attention, name)); };
  const double o = of("do");  // is read, and do besides, in 8 bits instead of 16
  const auto width = static_cast<double>(size_of(attention.dtype_of("o")));
  return 3 * (of("q") + of("k") + of("v")) + (1 + 2 + width) * o - 4 * o;
}

void add_scales_of_gradients(const ir::Attention& attention, codegen::KernelInputs& inputs) {
  for (const ir::Scale& scale : ir::kScales) {
    if (!attention.has(scale) || std::ranges::find(kUnread, scale.name) != std::end(kUnread))
      continue;
    inputs.operands.emplace_back(plan::TensorOperand{std::string(scale.name)});
    inputs.parameters.push_back(fmt::format("const float* t_{}", scale.name));
  }
}

std::string factors_of_gradients_text(const ir::Attention& attention) {
  const auto of = [&](const char* name) { return value_of_scale(attention, name); };
  return method_of("slope_factor", of("descale_do") + " * " + of("descale_v")) +
         method_of("slope_of_products", "scale_of_attention() * slope_factor()") +
         method_of("query_factor", "slope_of_products() * " + of("descale_k")) +
         method_of("key_factor", "slope_of_products() * " + of("descale_q")) +
         method_of("value_factor", "kKeptScale * " + of("descale_do")) +
         method_of("delta_factor", delta_factor(attention)) +
         method_of("scale_dq", of("scale_dq")) + method_of("scale_dk", of("scale_dk")) +
         method_of("scale_dv", of("scale_dv"));
}

}  // namespace attn::engines::native
