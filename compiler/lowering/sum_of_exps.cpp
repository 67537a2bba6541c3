#include "compiler/lowering/sum_of_exps.h"

#include <fmt/format.h>

#include "compiler/lowering/controls.h"
#include "compiler/lowering/kernel_text.h"

namespace attn::lowering {
namespace {

using ir::Dim;

// The statistics are [B, Hq, Sq], or [T, Hq] of the rows that there are.
std::string head_of(const ir::Attention& attention, bool ragged) {
  const ir::Dims& d = attention.dims;
  return ragged ? fmt::format("i % {}", d[Dim::Hq])
                : fmt::format("i / {} % {}", d[Dim::Sq], d[Dim::Hq]);
}

std::string statement(const ir::Attention& attention, const std::string& lse,
                      const std::string& max, const std::string& sink, const std::string& starts) {
  std::string text;
  if (!starts.empty()) {
    text = fmt::format("if (i >= {}[{}] * {}LL) return;\n    ", starts, attention.dims[Dim::B],
                       attention.dims[Dim::Hq]);
  }
  return text + fmt::format(
                    "const double largest = {1}[i];\n"
                    "    const double sum = exp({0}[i] - largest) - exp({2}[{3}] - "
                    "largest);\n"
                    "    out[i] = largest < 0 && isinf(largest) ? 0 : sum;",
                    lse, max, sink, head_of(attention, !starts.empty()));
}

}  // namespace

bool has_late_sum(const ir::Attention& attention) {
  return attention.sink && attention.wants_sum_exp;
}

std::string lse_name(const ir::Attention& attention) {
  return attention.wants_lse ? "lse" : "lse.beside";
}

std::string max_name(const ir::Attention& attention) {
  return attention.wants_max ? "max" : "max.beside";
}

LateSum late_sum(const ir::Attention& attention) {
  LateSum late;
  if (!has_late_sum(attention)) return late;
  const ir::Dims& d = attention.dims;
  const std::vector<std::int64_t> dims{d[Dim::B], d[Dim::Hq], d[Dim::Sq]};
  const auto internal = [&](std::string name, bool wanted) {
    if (wanted) return;
    late.internals.push_back({std::move(name),
                              plan::TensorRole::internal,
                              DType::f32,
                              dims,
                              {dims[1] * dims[2], dims[2], 1},
                              plan::kInternalAlignment});
  };
  internal(lse_name(attention), attention.wants_lse);
  internal(max_name(attention), attention.wants_max);
  KernelText kernel;
  const std::string lse = kernel.read(lse_name(attention), DType::f32);
  const std::string max = kernel.read(max_name(attention), DType::f32);
  const std::string sink = kernel.read(attention.dag.symbol_of(*attention.sink), DType::f32);
  const bool ragged = !addressed_by(attention, "sum_exp").empty();
  const std::string starts = ragged ? kernel.read(kRowStarts, DType::i32) : "";
  kernel.make("sum_exp", DType::f32, dims[0] * dims[1] * dims[2],
              "exp(lse - max) - exp(sink - max)", statement(attention, lse, max, sink, starts));
  late.steps.push_back(std::move(kernel).finish(false));
  return late;
}

}  // namespace attn::lowering
