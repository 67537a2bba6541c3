#include "compiler/lowering/unfused/row_gradients.h"

#include <fmt/format.h>

#include "compiler/derive/emit.h"
#include "compiler/lowering/common/kernel_text.h"
#include "compiler/lowering/unfused/row_text.h"

namespace attn::lowering {
namespace {

using ir::Dim;

constexpr const char* kDelta = R"(
  const float* row = {scores} + r * {Skv};
  const float* cotangent = {cotangents} + r * {columns};
  const float lse = present ? {lse}[{place}] : (float)nothing;
  const bool empty = lse == (float)nothing;
  double total = 0, delta = 0;
  for (long long c = lane; c < visible && !empty; c += W) {{
    if (row[c] == (float)nothing) continue;
    const double weight = expf(row[c] - lse);
    total += weight;
    if ({kept}) delta += weight * ({scale}cotangent[c]);
  }}
)";

constexpr const char* kMade = R"(
  const double factor = 1 / total;
  delta *= factor;
  for (long long c = lane; c < {columns} && live; c += W) {{
    const bool seen = c < visible && !empty && row[c] != (float)nothing;
    const bool kept = seen && {kept};
    const double weight = seen ? expf(row[c] - lse) * factor : 0;
    const double through = kept ? {scale}cotangent[c] : 0;
    {modified}[r * {columns} + c] = seen ? (float)(weight * (through - delta)) : 0;
{weights}  }}
  if (lane != 0 || !live) return;
)";

constexpr const char* kDeltaOfRow = R"(
  const float lse = present ? {lse}[{place}] : (float)nothing;
  const bool empty = lse == (float)nothing;
  double delta = 0;
  for (long long d = lane; d < {Dv} && !empty; d += W) {{
    delta += {widen}({o}[r * {stride} + d]) * {widen}({d_o}[r * {stride} + d]);
  }}
)";

// The first lane writes a row's statistics.
std::string rows_text(const std::string& lse, const std::string& deltas, KernelText& kernel) {
  std::string text;
  if (!lse.empty()) {
    text += fmt::format("  {}[r] = lse;\n", kernel.write(lse, DType::f32, "lse, packed"));
  }
  if (!deltas.empty()) {
    const std::string name = kernel.write(deltas, DType::f32, "the sum of do * o");
    text += fmt::format("  {}[r] = empty ? 0 : (float)delta;\n", name);
  }
  return text;
}

class Emitter {
 public:
  Emitter(const ir::Attention& attention, const RowGradientTensors& tensors)
      : attention_(attention), tensors_(tensors) {}

  plan::DeriveStep step() && {
    if (!tensors_.kept.empty()) {
      kept_ = fmt::format("{}[r * {} + c] != 0", kernel_.read(tensors_.kept, DType::i32),
                          attention_.dims[Dim::Skv]);
      scale_ = fmt::format("{} * ", 1 / (1 - attention_.dropout->probability));
    }
    kernel_.add(row_text(attention_, lanes_of(tensors_.columns), kernel_, tensors_.tile));
    add_delta();
    kernel_.add(sum_over_lanes("total") + sum_over_lanes("delta"));
    if (!tensors_.sinks.empty()) {
      kernel_.add(
          fmt::format("  total += exp({}[h] - lse);\n", kernel_.read(tensors_.sinks, DType::f32)));
    }
    add_made();
    kernel_.add(rows_text(tensors_.lse, tensors_.deltas, kernel_));
    plan::DeriveStep made = std::move(kernel_).finish(false);
    const bool again = tensors_.tile && tensors_.tile->again;
    if (again) made.amends = tensors_.tile->all_rows() * lanes_of(tensors_.columns);
    return made;
  }

 private:
  void add_delta() {
    kernel_.add(fmt::format(
        fmt::runtime(kDelta), fmt::arg("scores", kernel_.read(tensors_.scores, DType::f32)),
        fmt::arg("cotangents", kernel_.read(tensors_.cotangents, DType::f32)),
        fmt::arg("lse", kernel_.read("lse", DType::f32)),
        fmt::arg("place", row_place(attention_, kernel_, tensors_.tile.has_value())),
        fmt::arg("Skv", attention_.dims[Dim::Skv]), fmt::arg("columns", tensors_.columns),
        fmt::arg("kept", kept_), fmt::arg("scale", scale_)));
  }

  void add_made() {
    const std::string modified =
        kernel_.write(tensors_.modified, DType::f32, "weight * (do v^T - delta)");
    kernel_.add(fmt::format(fmt::runtime(kMade), fmt::arg("columns", tensors_.columns),
                            fmt::arg("modified", modified), fmt::arg("kept", kept_),
                            fmt::arg("scale", scale_), fmt::arg("weights", weights())));
  }

  std::string weights() {
    if (tensors_.weights.empty()) return "";
    kernel_.include(derive::narrowing_text(attention_.dtype));
    return fmt::format("    {}[r * {} + c] = attn_narrow(kept ? (float)({}weight) : 0);\n",
                       kernel_.write(tensors_.weights, attention_.dtype, "exp(score - lse)"),
                       tensors_.columns, scale_);
  }

  const ir::Attention& attention_;
  const RowGradientTensors& tensors_;
  std::string kept_ = "true", scale_;
  KernelText kernel_;
};

}  // namespace

plan::DeriveStep row_gradients(const ir::Attention& attention, const RowGradientTensors& tensors) {
  return Emitter(attention, tensors).step();
}

plan::DeriveStep row_deltas(const ir::Attention& attention, const RowDeltaTensors& tensors) {
  KernelText kernel;
  kernel.include(derive::include_text());
  kernel.add(row_text(attention, 1, kernel));
  kernel.add(fmt::format(
      fmt::runtime(kDeltaOfRow), fmt::arg("lse", kernel.read("lse", DType::f32)),
      fmt::arg("place", row_place(attention, kernel)), fmt::arg("Dv", attention.dims[Dim::Dv]),
      fmt::arg("widen", attention.dtype == DType::f16 ? "attn_f16" : "attn_bf16"),
      fmt::arg("o", kernel.read(tensors.o, attention.dtype)),
      fmt::arg("d_o", kernel.read(tensors.d_o, attention.dtype)),
      fmt::arg("stride", tensors.stride)));
  kernel.add(sum_over_lanes("delta") + "  if (lane != 0 || !live) return;\n");
  kernel.add(rows_text(tensors.lse, tensors.deltas, kernel));
  return std::move(kernel).finish(false);
}

}  // namespace attn::lowering
