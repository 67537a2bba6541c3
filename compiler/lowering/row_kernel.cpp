#include "compiler/lowering/row_kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "compiler/lowering/controls.h"
#include "compiler/lowering/kernel_text.h"
#include "compiler/lowering/lengths.h"

namespace attn::lowering {
namespace {

using ir::Dim;

constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kFewLanes = 8;  // columns are a multiple of it

// Names: R rows of W lanes; `i` is the thread, `r` its row, `live` whether there is one.
constexpr const char* kRow = R"(
  const long long R = {R}LL;
  const int W = {W}, lane = (int)(i % W);
  const bool live = i / W < R;
  const long long r = live ? i / W : R - 1;
  const long long s = r % {Sq}, h = r / {Sq} % {Hq}, b = r / {Sq} / {Hq};
  const bool present = {present};
  const long long visible = present ? {visible} : 0;
  const double nothing = -1.0 / 0.0;
  const float* row = {scores} + r * {Skv};
)";

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
  for (int step = W / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
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

std::string narrowing(DType dtype) {
  return fmt::format(
      "static __device__ unsigned short attn_narrow(float x) {{\n"
      "  unsigned short bits;\n"
      "  asm(\"cvt.rn.{}.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(x));\n"
      "  return bits;\n}}\n",
      to_string(dtype));
}

class Emitter {
 public:
  Emitter(const ir::Attention& attention, const RowTensors& tensors)
      : attention_(attention), tensors_(tensors) {}

  plan::DeriveStep step() && {
    write("weights", tensors_.weights, "softmax of the scores", c_type(attention_.dtype));
    std::string body = fill(kRow) + kReduce + (tensors_.sinks.empty() ? kNoSink : fill(kSink));
    body += fill(kWeights) + statistics();
    step_.source =
        narrowing(attention_.dtype) +
        fmt::format(
            "extern \"C\" __global__ void {}({}) {{\n"
            "  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;{}}}\n",
            plan::kDeriveKernel, parameters(), body);
    return std::move(step_);
  }

 private:
  std::string parameters() const {
    std::vector<std::string> all = outputs_;
    all.insert(all.end(), inputs_.begin(), inputs_.end());
    return fmt::format("{}", fmt::join(all, ", "));
  }

  void write(const std::string& name, const std::string& tensor, const char* meaning,
             const std::string& type) {
    outputs_.push_back(fmt::format("{}* {}", type, name));
    step_.outputs.push_back(tensor);
    step_.expressions.emplace_back(meaning);
  }

  std::string read(const std::string& tensor, DType dtype) {
    for (std::size_t i = 0; i < step_.inputs.size(); ++i) {
      if (std::get<plan::TensorOperand>(step_.inputs[i]).name == tensor)
        return fmt::format("in{}", i);
    }
    std::string name = fmt::format("in{}", inputs_.size());
    inputs_.push_back(fmt::format("const {}* {}", c_type(dtype), name));
    step_.inputs.emplace_back(plan::TensorOperand{tensor});
    return name;
  }

  std::string present() {
    if (!has_row_lengths(attention_)) return "true";
    return fmt::format("s < {}[b]", read(std::string(ir::kLengthsQ), DType::i32));
  }

  std::string visible() {
    const std::int64_t all = attention_.dims[Dim::Skv];
    if (!has_column_lengths(attention_)) return fmt::format("{}", all);
    const std::string lengths = read(std::string(ir::kLengthsKv), DType::i32);
    return fmt::format("({0}[b] < {1} ? {0}[b] : {1})", lengths, all);
  }

  // The tensors are read in the order of the text, once each.
  std::string fill(const char* text) {
    const ir::Dims& d = attention_.dims;
    const std::int64_t rows = d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
    const std::string scores = read(tensors_.scores, DType::f32);
    const std::string sinks = tensors_.sinks.empty() ? "" : read(tensors_.sinks, DType::f32);
    std::string kept, scale;
    if (!tensors_.kept.empty()) {
      kept = fmt::format(" && {}[r * {} + c] != 0", read(tensors_.kept, DType::i32), d[Dim::Skv]);
      scale = fmt::format("{} * ", 1 / (1 - attention_.dropout->probability));
    }
    return fmt::format(fmt::runtime(text), fmt::arg("R", rows),
                       fmt::arg("W", tensors_.columns >= kWarp ? kWarp : kFewLanes),
                       fmt::arg("Sq", d[Dim::Sq]), fmt::arg("Hq", d[Dim::Hq]),
                       fmt::arg("Skv", d[Dim::Skv]), fmt::arg("present", present()),
                       fmt::arg("visible", visible()), fmt::arg("scores", scores),
                       fmt::arg("sinks", sinks), fmt::arg("scale", scale), fmt::arg("kept", kept),
                       fmt::arg("columns", tensors_.columns), fmt::arg("weights", "weights"));
  }

  std::string statistics() {
    std::string text;
    const auto add = [&](const char* name, bool wanted, const char* meaning, const char* value) {
      if (!wanted) return;
      write(name, name, meaning, "float");
      text += fmt::format("  {}[place] = {};\n", name, value);
    };
    add("lse", attention_.wants_lse, "log of the sum of exp(score)",
        tensors_.sinks.empty() ? "empty ? nothing : top + log(total)"
                               : "present ? top + log(total) : nothing");
    add("max", attention_.wants_max, "the largest score", "largest");
    add("sum_exp", attention_.wants_sum_exp, "sum of exp(score - max)", "sum");
    if (text.empty()) return text;
    if (addressed_by(attention_, "o").empty()) return "  const long long place = r;\n" + text;
    return fmt::format(
               "  if (!present) return;\n"
               "  const long long place = ({}[b] + s) * {}LL + h;\n",
               read(kRowStarts, DType::i32), attention_.dims[Dim::Hq]) +
           text;
  }

  const ir::Attention& attention_;
  const RowTensors& tensors_;
  std::vector<std::string> outputs_, inputs_;  // parameters
  plan::DeriveStep step_;
};

}  // namespace

plan::DeriveStep row_kernel(const ir::Attention& attention, const RowTensors& tensors) {
  return Emitter(attention, tensors).step();
}

}  // namespace attn::lowering
