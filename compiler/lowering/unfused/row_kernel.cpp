#include "compiler/lowering/unfused/row_kernel.h"

#include <fmt/format.h>

#include "compiler/derive/emit.h"
#include "compiler/lowering/common/controls.h"
#include "compiler/lowering/common/kernel_text.h"
#include "compiler/lowering/unfused/row_text.h"

namespace attn::lowering {
namespace {

using ir::Dim;

constexpr const char* kReduce = R"(
  float largest = (float)nothing;
  for (long long c = lane; c < visible; c += W) {
    if (row[c] > largest || row[c] != row[c]) largest = row[c];
  }
  for (int step = W / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, largest, step);
    if (other > largest || other != other) largest = other;
  }
  const bool empty = largest == (float)nothing;
  double sum = 0;
  for (long long c = lane; c < visible && !empty; c += W) sum += expf(row[c] - largest);
)";

constexpr const char* kNoSink = R"(
  const double top = largest, total = sum;
)";

constexpr const char* kSink = R"(
  const double sink = {sinks}[h];
  const double top = sink > largest ? sink : largest;
  const double total = (empty ? 0 : sum * exp(largest - top)) + exp(sink - top);
)";

constexpr const char* kWeights = R"(
  const float factor = empty ? 0 : (float)({scale}exp(largest - top) / total);
  for (long long c = lane; c < {columns} && live; c += W) {{
    const bool seen = c < visible && !empty{kept};
    {weights}[r * {columns} + c] = attn_narrow(seen ? expf(row[c] - largest) * factor : 0);
  }}
  if (lane != 0 || !live) return;
)";

class Emitter {
 public:
  Emitter(const ir::Attention& attention, const RowTensors& tensors)
      : attention_(attention), tensors_(tensors) {}

  plan::DeriveStep step() && {
    kernel_.include(derive::narrowing_text(attention_.dtype));
    kernel_.add(row_text(attention_, lanes_of(tensors_.columns), kernel_));
    kernel_.add(fmt::format("  const float* row = {} + r * {};\n",
                            kernel_.read(tensors_.scores, DType::f32), attention_.dims[Dim::Skv]));
    kernel_.add(kReduce + sum_over_lanes("sum"));
    add_total();
    add_weights();
    add_statistics();
    return std::move(kernel_).finish(false);
  }

 private:
  void add_total() {
    if (tensors_.sinks.empty()) {
      kernel_.add(kNoSink);
    } else {
      kernel_.add(fmt::format(fmt::runtime(kSink),
                              fmt::arg("sinks", kernel_.read(tensors_.sinks, DType::f32))));
    }
  }

  void add_weights() {
    std::string kept, scale;
    if (!tensors_.kept.empty()) {
      kept = fmt::format(" && {}[r * {} + c] != 0", kernel_.read(tensors_.kept, DType::i32),
                         attention_.dims[Dim::Skv]);
      scale = fmt::format("{} * ", 1 / (1 - attention_.dropout->probability));
    }
    const std::string weights =
        kernel_.write(tensors_.weights, attention_.dtype, "softmax of the scores");
    kernel_.add(fmt::format(fmt::runtime(kWeights), fmt::arg("scale", scale),
                            fmt::arg("kept", kept), fmt::arg("columns", tensors_.columns),
                            fmt::arg("weights", weights)));
  }

  void add_statistics() {
    std::string text;
    const auto add = [&](const char* name, bool wanted, const char* meaning, const char* value) {
      if (!wanted) return;
      text += fmt::format("  {}[place] = {};\n", kernel_.write(name, DType::f32, meaning), value);
    };
    add("lse", attention_.wants_lse, "log of the sum of exp(score)",
        tensors_.sinks.empty() ? "empty ? nothing : top + log(total)"
                               : "present ? top + log(total) : nothing");
    add("max", attention_.wants_max, "the largest score", "largest");
    add("sum_exp", attention_.wants_sum_exp, "sum of exp(score - max)", "sum");
    add("max_with_sink", attention_.wants_max_with_sink, "the larger of max and the sink",
        "present ? top : nothing");
    add("sum_exp_with_sink", attention_.wants_sum_exp_with_sink,
        "sum of exp(score - max_with_sink), including the sink",
        "present && top != nothing ? total : 0");
    if (text.empty()) return;
    if (!addressed_by(attention_, "lse").empty()) kernel_.add("  if (!present) return;\n");
    kernel_.add(fmt::format("  const long long place = {};\n", row_place(attention_, kernel_)) +
                text);
  }

  const ir::Attention& attention_;
  const RowTensors& tensors_;
  KernelText kernel_;
};

}  // namespace

plan::DeriveStep row_kernel(const ir::Attention& attention, const RowTensors& tensors) {
  return Emitter(attention, tensors).step();
}

}  // namespace attn::lowering
