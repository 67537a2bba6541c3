#include "tests/fuzz/kernel_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/fuzz/decisions.h"
#include "tests/fuzz/typed_spec.h"

namespace attn::fuzz {
namespace {

constexpr std::int64_t kMostScores = 200'000;   // of all batches and heads
constexpr std::int64_t kMostWork = 20'000'000;  // multiply-adds of a product
constexpr std::int64_t kLeastElements = 2048;   // of o: errors of few are not near their mean
constexpr std::size_t kOwnDecisions = 512;      // the others are those of expressions

struct Depths {
  std::int64_t qk = 64, v = 64;
};

class KernelSpec : Decisions {
 public:
  KernelSpec(std::span<const std::uint8_t> decisions, bool trained)
      : Decisions(decisions.first(kOwnDecisions)),
        expressions_(decisions.subspan(kOwnDecisions)),
        trained_(trained) {}

  std::string run() {
    const std::string sizes = dims(), layout = this->layout(), align = this->align();
    const std::string scores = one_in(2) ? typed() : usual();
    const std::string weights = this->weights(), sink = this->sink(), dropout = this->dropout();
    const std::string rows = this->rows(), epilogue = this->epilogue();
    return fmt::format("attention random(_w = 37) {{\n{}  dtype {};\n{}{}{}{}{}{}{}{}{}{}}}\n",
                       sizes, dtype_, layout, align, tensors_, scores, weights, sink, dropout, rows,
                       epilogue, results());
  }

 private:
  std::int64_t size(std::initializer_list<std::int64_t> sizes) {
    return sizes.begin()[below(static_cast<unsigned>(sizes.size()))];
  }

  // Sizes end within tiles and blocks. Where scores are too many, each size is halved in turns.
  std::string dims() {
    dtype_ = pick({"bf16", "bf16", "f16"});
    sizes_.batch = size({2, 1, 3});
    sizes_.key_heads = size({1, 2, 1});
    std::int64_t group = size({2, 1, 5, 4});
    sizes_.rows = size({129, 64, 77, 200, 1, 16, 256, 33, 150});
    sizes_.columns = one_in(3) ? sizes_.rows : size({200, 129, 320, 65, 77, 500, 128, 7});
    depths_ = depths();
    const auto too_many = [&] {
      const std::int64_t scores =
          sizes_.batch * sizes_.key_heads * group * sizes_.rows * sizes_.columns;
      return scores > kMostScores || scores * (depths_.qk + depths_.v) / 2 > kMostWork;
    };
    const auto elements = [&] {
      return sizes_.batch * sizes_.key_heads * group * sizes_.rows * depths_.v;
    };
    while (elements() < kLeastElements) sizes_.batch *= 2;
    while (too_many()) {
      for (std::int64_t* size : {&sizes_.columns, &group, &sizes_.rows, &sizes_.batch})
        if (too_many()) *size = (*size + 1) / 2;
    }
    sizes_.heads = sizes_.key_heads * group;
    return fmt::format("  dims B = {}, Hq = {}, Hkv = {}, Sq = {}, Skv = {}, Dqk = {}, Dv = {};\n",
                       sizes_.batch, sizes_.heads, sizes_.key_heads, sizes_.rows, sizes_.columns,
                       depths_.qk, depths_.v);
  }

  Depths depths() {
    const std::int64_t depth =
        size({64, 128, 96, 8, 16, 24, 40, 72, 80, 112, 160, 192, 200, 248, 256, 32, 64, 128});
    if (!one_in(5)) return {depth, depth};
    return {depth, size({64, 32, 128, 40, 200, 256, 8})};
  }

  std::string layout() {
    switch (below(trained_ ? 8 : 10)) {
      case 0:
      case 1: return fmt::format("  layout {};\n", pick({"bshd", "bhsd", "sbhd"}));
      case 2: return layout_of_each();
      case 3:
      case 4: return thd();
      case 5: return "  layout q: strides(Sq * Hq * (Dqk + 8), Dqk + 8, Hq * (Dqk + 8), 1);\n";
      case 6:
        return fmt::format("  layout {};\n  lengths kv = (i0 * 53 + Skv) % (Skv + 1);\n",
                           pick({"bshd", "bhsd"}));
      case 7: return lengths();
      default: return pages();
    }
  }

  std::string layout_of_each() {
    std::string text;
    for (const char* tensor : {"q", "k", "v", "o"}) {
      text += text.empty() ? "  layout " : ", ";
      text += fmt::format("{}: {}", tensor, pick({"bshd", "bhsd", "sbhd"}));
    }
    return text + ";\n";
  }

  // Full, empty and other lengths.
  static std::string lengths() {
    return "  lengths q = Sq - i0 * 29 % (Sq + 1), kv = (Skv - i0 * 53) % (Skv + 1);\n";
  }

  std::string thd() {
    const std::string which = pick({"thd", "thd", "k: thd, v: thd", "q: thd, o: thd"});
    return fmt::format("  layout {};\n", which) + lengths();
  }

  std::string pages() {
    const std::string page = pick({"16", "1", "7", "12", "48", "64", "128"});
    const std::string tables = pick({"", "", ", tables = 2"});
    return fmt::format("  layout paged(page = {}{});\n", page, tables) + lengths();
  }

  std::string align() {
    bottom_right_ = one_in(5);
    return bottom_right_ ? "  align bottom_right;\n" : "";
  }

  std::string typed() { return typed_clauses(expressions_, sizes_, bottom_right_); }

  // Scores and masks of models.
  std::string usual() {
    std::string text = score();
    for (unsigned i = below(3); i > 0; --i) text += fmt::format("  mask {};\n", mask());
    return text;
  }

  // Declares a tensor of floats, learned in a training, with a gradient of its own.
  std::string floats(std::string_view name, std::string_view shape) {
    const bool learned = trained_ && !one_in(4);
    if (learned) learned_ += fmt::format(", {}", name);
    return fmt::format("  {} {}: {}[{}];\n", learned ? "learn" : "tensor", name,
                       pick({"f32", "bf16", "f16"}), shape);
  }

  std::string score() {
    switch (below(9)) {
      case 0: return "";
      case 1: return "  score 4 * tanh(score / 4);\n";
      case 2: return floats("_a", "Hq") + "  score score + _a[h] * (kv_idx - q_idx) / 64;\n";
      case 3: return floats("_a", "Sq, Skv") + "  score score + _a[q_raw, kv_idx];\n";
      case 4: return floats("_a", "Hq, Sq, Skv") + "  score score + _a[h, q_raw, kv_idx];\n";
      case 5:
        return floats("_a", "32, Hq") +
               "  score score + _a[clamp(q_idx - kv_idx + 16, 0, 31), h];\n";
      case 6: return floats("_a", "B, Skv") + "  score score * (1 + 0.25 * _a[b, kv_idx]);\n";
      case 7:
        return floats("_a", "Hq, Skv") +
               "  let _c = cumsum(tanh(_a[h, kv_idx]) / Skv);\n"
               "  score score - _c[kv_idx];\n";
      default: return "  score where((q_idx + kv_idx) % 2 == 0, score * 2, score / 2);\n";
    }
  }

  std::string mask() {
    switch (below(12)) {
      case 0:
      case 1: return "q_idx >= kv_idx";
      case 2: return "0 <= q_idx - kv_idx < _w";
      case 3: return "abs(q_idx - kv_idx) <= _w";
      case 4: return "q_idx >= kv_idx || kv_idx < 40";
      case 5: return "q_idx // 48 == kv_idx // 48";
      case 6: return "(q_idx - kv_idx) % 4 == 0";
      case 7: return "abs(q_idx - kv_idx) <= 20 || q_idx < 8 || kv_idx < 8";
      case 8: return "abs(q_idx // 16 - kv_idx // 16) <= 3 && abs(q_idx % 16 - kv_idx % 16) <= 3";
      case 9: return declared("_d", "i32[B, Sq + Skv] = i1 // 45", "_d[b, q_raw] == _d[b, kv_idx]");
      case 10: return declared("_m", "bool[B, Skv] = (i0 + i1) % 5 != 0", "_m[b, kv_idx]");
      default: return declared("_n", "i32[Hq] = 30 + i0 * 17", "q_idx - kv_idx < _n[h]");
    }
  }

  // The mask `words`, with a tensor, which is declared once.
  std::string declared(std::string_view name, std::string_view type, std::string_view words) {
    if (tensors_.find(name) == std::string::npos)
      tensors_ += fmt::format("  tensor {}: {};\n", name, type);
    return std::string(words);
  }

  // What makes a weight of a score, mostly softmax.
  std::string weights() {
    if (!one_in(5)) return "";
    softmax_ = false;
    has_sum_ = one_in(2);
    if (has_sum_) {
      return pick({"  weight relu(exp(score) - 1) / sum(abs(exp(score) - 1));\n",
                   "  weight score / sum(abs(score) + 1);\n"});
    }
    return pick({"  normalize sigmoid;\n", "  weight silu(score) / Skv;\n",
                 "  weight relu(score) ** 2 / Skv;\n", "  weight score / Skv;\n"});
  }

  std::string sink() {
    if (!softmax_ || !one_in(8)) return "";
    return floats("_s", "Hq") + "  sink _s[h];\n";
  }

  std::string dropout() {
    if (!one_in(6)) return "";
    const std::string keep =
        "  tensor _k: bool[B, Hq, Sq, Skv] = (i0 + i1 * 3 + i2 * 5 + i3 * 7) % 4 != 0;\n"
        "  dropout 0.25, _k[b, h, q_raw, kv_idx];\n";
    return one_in(4) ? keep : fmt::format("  dropout {};\n", pick({"0.1", "0.5"}));
  }

  // Rows of q or k that are about as long as they are without it.
  std::string rows() {
    if (!one_in(8)) return "";
    return fmt::format("  prologue {}: {};\n", pick({"q", "k"}),
                       pick({"x[d_idx] * rsqrt(sum(x[d_idx] ** 2) / Dqk + 0.5)",
                             "x[d_idx] * (1 + 0.25 * sin(d_idx))",
                             "where(d_idx < Dqk // 2, x[Dqk - 1 - d_idx], x[d_idx])"}));
  }

  std::string epilogue() {
    if (!one_in(6)) return "";
    if (one_in(2)) {
      return floats("_e", "B, Hq, Sq, Dv") + "  gate sigmoid(_e[b, h, q_raw, d_idx]);\n";
    }
    return floats("_e", "Hq, Dv") + "  epilogue o * _e[h, d_idx] + 0.25 * tanh(o);\n";
  }

  std::string results() {
    std::string outputs = pick({"o, lse", "o, lse", "o", "o, lse, max, sum_exp"});
    if (!softmax_) outputs = has_sum_ ? "o, lse" : "o";
    std::string text = fmt::format("  outputs {};\n", outputs);
    if (!trained_) return text;
    if (one_in(3)) text += "  deterministic;\n";
    const bool through_lse = outputs != "o" && one_in(5);
    return text + fmt::format("  grad q, k, v{}{};\n", learned_, through_lse ? ", lse" : "");
  }

  std::span<const std::uint8_t> expressions_;
  bool trained_;
  std::string dtype_;
  TypedSizes sizes_;
  Depths depths_;
  bool bottom_right_ = false;
  bool softmax_ = true;
  bool has_sum_ = false;  // of weights that are no softmax
  std::string learned_;   // names, each behind a comma
  std::string tensors_;   // declarations of those that masks read
};

}  // namespace

std::string kernel_spec(std::uint64_t number, bool trained) {
  const std::string decisions = typed_decisions(number);
  return KernelSpec({reinterpret_cast<const std::uint8_t*>(decisions.data()), decisions.size()},
                    trained)
      .run();
}

}  // namespace attn::fuzz
