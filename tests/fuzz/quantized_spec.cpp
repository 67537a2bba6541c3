#include "tests/fuzz/quantized_spec.h"

#include <fmt/format.h>

#include "tests/fuzz/decisions.h"
#include "tests/fuzz/typed_spec.h"

namespace attn::fuzz {
namespace {

class QuantizedSpec : Decisions {
 public:
  using Decisions::Decisions;

  std::string run() {
    trained_ = one_in(2);
    std::string text = dims() + types() + layout();
    if (const std::string words = mask(); !words.empty())
      text += fmt::format("  mask {};\n", words);
    text += rare();
    text += fmt::format("  outputs o, lse{};\n", pick({", amax_s, amax_o", "", ", amax_o"}));
    if (trained_) text += "  grad q, k, v;\n";
    return fmt::format("attention random(_w = 37) {{\n{}}}\n", text);
  }

 private:
  // Backwards have fewer sizes.
  std::string dims() {
    const std::string heads = pick({"2", "1", "2", "3"});
    const std::string rows = trained_ ? pick({"128", "256", "384", "512", "77"})
                                      : pick({"128", "256", "384", "512", "129", "77", "64"});
    const std::string columns = trained_ ? pick({"Sq", "256", "128", "512"})
                                         : pick({"Sq", "Sq", "256", "128", "512", "129", "320"});
    const std::string depths = trained_ ? pick({"D = 128", "D = 128", "D = 128", "D = 64"})
                                        : pick({"D = 128", "D = 128", "D = 64", "D = 96", "D = 72",
                                                "D = 256", "Dqk = 192, Dv = 128"});
    return fmt::format("  dims B = {}, Hkv = {}, Hq = {} * Hkv, Sq = {}, Skv = {}, {};\n",
                       pick({"2", "1", "3"}), heads, pick({"1", "2", "5"}), rows, columns, depths);
  }

  std::string types() {
    const std::string o = pick({"", "", "", ", o: e5m2", ", o: bf16"});
    const std::string d_o = trained_ ? pick({"", ", do: e5m2"}) : "";
    const std::string gradients =
        trained_ ? pick({"", ", gradients: e5m2", ", gradients: e5m2", ", gradients: bf16"}) : "";
    const bool half_o = o.ends_with("bf16"), half_gradients = gradients.ends_with("bf16");
    return fmt::format("  dtype {};\n  quantize per_tensor{}{}{}{}{}{};\n",
                       pick({"e4m3", "e4m3", "e4m3", "e5m2"}), o, d_o, gradients, inputs(),
                       half_o ? "" : of_o(), trained_ ? of_gradients(half_gradients) : "");
  }

  std::string inputs() {
    const std::string weights = pick({"256", "128", "64"});
    return fmt::format(
        ", descale_q = {}, descale_k = {}, descale_v = {}, scale_s = {}, "
        "descale_s = 1 / {}",
        pick({"1", "0.5", "0.75"}), pick({"1", "0.5", "1.5"}), pick({"1", "0.5", "2"}), weights,
        weights);
  }

  std::string of_o() {
    const std::string scale = pick({"32", "16", "24"});
    return fmt::format(", scale_o = {}{}", scale, trained_ ? ", descale_o = 1 / " + scale : "");
  }

  std::string of_gradients(bool half) {
    const std::string scale = pick({"64", "32"});
    const std::string text = fmt::format(", descale_do = {}, scale_dp = {}, descale_dp = 1 / {}",
                                         pick({"0.5", "1"}), scale, scale);
    return half ? text : text + ", scale_dq = 16, scale_dk = 16, scale_dv = 8";
  }

  std::string layout() {
    const std::string layout = pick({"bshd", "bshd", "bhsd", "sbhd", "thd"});
    if (layout == "thd") {
      return "  layout thd;\n  lengths q = Sq - i0 * 3, kv = Skv - i0 * 3;\n";
    }
    return fmt::format("  layout {};\n", layout);
  }

  std::string mask() {
    return pick({"", "q_idx >= kv_idx", "q_idx >= kv_idx", "0 <= q_idx - kv_idx < _w",
                 "abs(q_idx - kv_idx) <= _w", "(q_idx + kv_idx) % 3 > 0"});
  }

  // What some kernels lack. (A sink and a single row are left to tests/gpu: cuDNN itself refuses
  // them.)
  std::string rare() {
    if (!one_in(6)) return "";
    return pick({"  score 5 * tanh(score / 5);\n", "  dropout 0.1;\n", "  align bottom_right;\n"});
  }

  bool trained_ = false;
};

}  // namespace

std::string quantized_spec_of(std::span<const std::uint8_t> decisions) {
  return QuantizedSpec(decisions).run();
}

std::string quantized_spec(std::uint64_t number) {
  const std::string decisions = typed_decisions(number);
  return quantized_spec_of(
      {reinterpret_cast<const std::uint8_t*>(decisions.data()), decisions.size()});
}

}  // namespace attn::fuzz
