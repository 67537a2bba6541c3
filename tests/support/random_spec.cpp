#include "tests/support/random_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace attn::testing {
namespace {

class RandomSpec {
 public:
  RandomSpec(std::uint64_t seed, std::int64_t longest)
      : seed_(seed), longest_(longest), random_(seed) {}

  std::string text() {
    const std::string score = this->score(), mask = this->mask(), sizes = this->sizes();
    const char* sink = pick(8) == 0 ? " tensor sinks: f32[Hq]; sink sinks[h];" : "";
    const char* align = pick(6) == 0 ? " align bottom_right;" : "";
    return fmt::format(
        "attention random_{} {{ {} dtype f16; layout {};{}{}{} score {}; mask {}; outputs o, lse; "
        "grad q, k, v; }}",
        seed_, sizes, layout(), align, tensors_, sink, score, mask);
  }

 private:
  std::int64_t pick(std::int64_t count) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(count));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + pick(high - low + 1); }
  template <typename T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[pick(static_cast<std::int64_t>(all.size()))];
  }

  // Prefers multiples of the divisors in masks.
  std::int64_t size() {
    if (pick(2) == 0) return between(1, longest_);
    return std::min(longest_, one_of<std::int64_t>({16, 24, 32, 48, 60, 64, 96, 120, 128, 192}));
  }

  std::string sizes() {
    const std::int64_t rows = size(), columns = pick(3) == 0 ? size() : rows;
    const int heads = one_of({1, 1, 2}), group = one_of({1, 1, 2, 3});
    return fmt::format("dims B = {}, Hq = {}, Hkv = {}, Sq = {}, Skv = {}, D = {};", one_of({1, 2}),
                       heads * group, heads, rows, columns, one_of({8, 8, 16, 12}));
  }

  std::string layout() {
    if (pick(4) > 0) return one_of({"bshd", "bhsd", "sbhd"});
    const auto each = [this] { return one_of({"bshd", "bhsd", "sbhd"}); };
    return fmt::format("q: {}, k: {}, v: {}, o: {}", each(), each(), each(), each());
  }

  std::string score() {
    const std::int64_t n = between(2, 8);
    switch (pick(12)) {
      case 0: return "where(abs(q_idx - kv_idx) % 2 == 0, score * 2, score * 0.5)";
      case 1: return "2 * tanh(score / 2)";
      case 2: return "score - 0.125 * abs(q_idx - kv_idx)";
      case 3: return "score * (1 + h) + 0.01 * kv_idx";
      case 4: return fmt::format("score + 0.25 * ((q_idx + kv_idx) % {})", n);
      case 5: return fmt::format("where(q_idx // {0} == kv_idx // {0}, score, score - 1)", 16 * n);
      case 6:
        tensors_ += " tensor slopes: f32[Hq];";
        return "score + 0.01 * slopes[h] * (kv_idx - q_idx)";
      case 7: tensors_ += " tensor bias: f32[Skv];"; return "score + bias[kv_idx]";
      default: return "score";
    }
  }

  std::string mask() {
    std::string all = clause();
    for (std::int64_t more = pick(3); more > 0; --more) all += " && " + clause();
    return all;
  }

  std::string clause() {
    switch (pick(6)) {
      case 0:
      case 1: return fmt::format("({} || {})", atom(), atom());
      case 2: return fmt::format("!({})", atom());
      default: return atom();
    }
  }

  std::string atom() {
    const int chunk = one_of({8, 16, 17, 20, 24, 32, 48, 64});
    const std::int64_t n = between(2, 8);
    const char* compares = one_of({"<", "<=", ">", ">=", "==", "!="});
    switch (pick(14)) {
      case 0:
      case 1: return fmt::format("q_idx // {0} == kv_idx // {0}", chunk);
      case 2: return fmt::format("q_idx // {0} {1} kv_idx // {0}", chunk, compares);
      case 3: return fmt::format("q_idx // {0} - kv_idx // {0} < {1}", chunk, between(1, 3));
      case 4:
      case 5: return fmt::format("q_idx % {0} == kv_idx % {0}", n);
      case 6: return fmt::format("(q_idx - kv_idx) % {} == {}", n, pick(2) * pick(n));
      case 7:
        return fmt::format("{} % {} {} {}", one_of({"q_idx", "kv_idx"}), n, compares, pick(n));
      case 8: return fmt::format("abs(q_idx - kv_idx) {} {}", compares, between(0, 60));
      case 9: return fmt::format("q_idx - kv_idx {} {}", compares, between(-40, 40));
      case 10: return "q_idx >= kv_idx";
      case 11: return fmt::format("abs(q_idx % {0} - kv_idx % {0}) <= {1}", chunk, n);
      case 12: return fmt::format("h % 2 {} {}", one_of({"==", "!="}), pick(2));
      default:
        return fmt::format("{} {} {}", one_of({"q_idx", "kv_idx"}), compares, between(0, 150));
    }
  }

  std::uint64_t seed_;
  std::int64_t longest_;
  std::mt19937_64 random_;
  std::string tensors_;
};

}  // namespace

std::string random_spec(std::uint64_t seed, std::int64_t longest) {
  return RandomSpec(seed, longest).text();
}

}  // namespace attn::testing
