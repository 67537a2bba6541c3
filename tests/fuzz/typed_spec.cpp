#include "tests/fuzz/typed_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "compiler/masks/real_range.h"
#include "tests/fuzz/decisions.h"
#include "tests/fuzz/functions.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::fuzz {
namespace {

constexpr double kScore = 6;              // bound of unmodified scores
constexpr double kLargest = 1000;         // bound of reals before they are scaled down
constexpr double kFinal = 12;             // bound of modified scores
constexpr std::int64_t kWidest = 100000;  // bound of integers
constexpr int kExactBits = 22;            // of the 24 bits of f32

// An integer expression with values from low to high.
struct Integer {
  std::string text;
  std::int64_t low = 0;
  std::int64_t high = 0;

  std::int64_t most() const { return std::max(std::abs(low), std::abs(high)); }
};

// A real expression with |x| <= most. With fraction >= 0 it is exact in f32, with that many
// fractional bits; otherwise it is rounded. `scored`: it depends on the score, so its values are
// arbitrary.
struct Real {
  std::string text;
  double most = 0;
  int fraction = -1;
  bool scored = false;

  bool exact() const { return fraction >= 0; }
  // Whether comparisons with such values are safe from rounding.
  bool may_jump() const { return exact() || scored; }
};

Real rounded(std::string text, double most, bool scored) {
  return {std::move(text), most, -1, scored};
}

Real held(std::string text, double most, int fraction, bool scored) {
  const bool fits = fraction >= 0 && most * std::exp2(fraction) < std::exp2(kExactBits);
  return {std::move(text), most, fits ? fraction : -1, scored};
}

// Fractional bits of the sum, minimum or maximum; -1 if either is rounded.
int common(const Real& x, const Real& y) {
  return x.exact() && y.exact() ? std::max(x.fraction, y.fraction) : -1;
}

std::int64_t power_above(std::int64_t value) {
  std::int64_t power = 1;
  while (power <= value) power *= 2;
  return power;
}

struct Tensor {
  std::string name;
  std::string dtype;
  std::string axes;  // a subset of "bhqk", by dimension; empty: a table of size `extent`
  std::int64_t extent = 0;
};

class TypedSpec : Decisions {
 public:
  using Decisions::Decisions;

  std::string run() {
    const std::string head = dims() + dtype() + align();
    std::string body = scores_and_masks();
    has_branches_ = one_in(6);
    body += other_clauses();
    if (one_in(6)) body += sums();
    if (one_in(6)) body += prologue();
    if (has_branches_) body += branches();
    return fmt::format("attention random(_w = 37) {{\n{}{}{}}}\n", head, declared(), body);
  }

  std::string clauses(const TypedSizes& sizes, bool bottom_right) {
    sizes_ = sizes;
    bottom_right_ = bottom_right;
    stays_within_ = true;
    const std::string body = scores_and_masks();
    return declared() + body;
  }

 private:
  std::string scores_and_masks() {
    std::string body;
    for (unsigned i = one_in(4) ? 2 : 1; i > 0; --i)
      body += fmt::format("  score {};\n", new_score());
    for (unsigned i = below(3); i > 0; --i) body += fmt::format("  mask {};\n", mask());
    return body;
  }

  std::int64_t size(std::initializer_list<std::int64_t> sizes) {
    return sizes.begin()[below(static_cast<unsigned>(sizes.size()))];
  }

  std::string dims() {
    sizes_.batch = size({2, 1, 2, 3});
    sizes_.key_heads = size({2, 1, 2, 3});
    sizes_.heads = sizes_.key_heads * size({2, 1, 2, 5});
    sizes_.rows = size({128, 64, 129, 77, 200, 256, 33, 1, 16});
    sizes_.columns = size({128, 256, 129, 201, 320, 65, 77});
    return fmt::format("  dims B = {}, Hq = {}, Hkv = {}, Sq = {}, Skv = {}, D = {};\n",
                       sizes_.batch, sizes_.heads, sizes_.key_heads, sizes_.rows, sizes_.columns,
                       size({64, 64, 128, 32, 80}));
  }

  std::string dtype() {
    dtype_ = pick({"bf16", "f16"});
    return fmt::format("  dtype {};\n", dtype_);
  }

  std::string align() {
    bottom_right_ = one_in(5);
    return bottom_right_ ? "  align bottom_right;\n" : "";
  }

  std::string other_clauses() {
    sink_ = one_in(10);
    std::string text = sink_ ? "  sink sinks[h];\n  tensor sinks: f32[Hq];\n" : "";
    if (one_in(8)) text += "  lengths kv = Skv - i0 * 3;\n";
    if (!has_branches_ && one_in(8)) text += epilogue();
    if (sink_ || !one_in(6)) return text + "  outputs o, lse;\n";
    if (one_in(2)) {
      return text +
             pick({"  weight relu(exp(score) - 1) / sum(abs(exp(score) - 1));\n",
                   "  weight score / sum(abs(score) + 1);\n",
                   "  weight expm1(score / 4) / sum(exp(score / 4) + 2);\n"}) +
             "  outputs o, lse;\n";
    }
    return text +
           pick({"  normalize sigmoid;\n", "  weight silu(score) / Skv;\n",
                 "  weight relu(score) ** 2;\n", "  weight score;\n"}) +
           "  outputs o;\n";
  }

  // What is above is of all branches; some have tensors and clauses of their own.
  std::string branches() {
    const std::string q2 = fmt::format("  learn _q2: {}[B, Hq, Sq, D];\n", dtype_);
    const std::string keys = fmt::format(
        "  tensor _k2: {0}[B, Hkv, Skv, D];\n  learn _v2: {0}[B, Hkv, Skv, D];\n", dtype_);
    const std::string more = pick({"  mask q_idx >= kv_idx;\n", "  score score / 2;\n", ""});
    const std::string others =
        pick({"  branch _x;\n", "  branch _x: q = _q2;\n", "  branch _x: k = _k2, v = _v2;\n",
              "  branch _y;\n  mask kv_idx % 3 != 1;\n  branch _x: v = _v2;\n"});
    const std::string gates = "  learn _gates: f32[B, Hq, Sq, 2];\n";
    const bool three = others.find("_y") != std::string::npos;
    const std::string combined =
        pick({"_own - 0.5 * _x", "_gates[b, h, q_raw, 0] * _own + _gates[b, h, q_raw, 1] * _x",
              "_own * tanh(_x)", "where(d_idx % 2 == 0, _own, _x)"});
    return q2 + keys + gates + others + more + "  branch _own;\n" +
           fmt::format("  combine {}{};\n", combined, three ? " + 0.25 * _y" : "");
  }

  // Rows of q or k that are about as long as they are without it.
  std::string prologue() {
    const std::string tensor = pick({"q", "k"});
    const std::string position = tensor == "q" ? "q_raw" : "kv_idx";
    const std::string value =
        pick({"x[d_idx] * rsqrt(sum(x[d_idx] ** 2) / D + 0.5)",
              "x[d_idx] * cos({0} * 0.1) - x[(d_idx + D // 2) % D] * sin({0} * 0.1)",
              "where(d_idx < D // 2, x[D - 1 - d_idx], x[d_idx] - sum(x[d_idx]) / D)",
              "x[d_idx] * (1 + 0.25 * sin(d_idx + {0}))"});
    return fmt::format("  prologue {}: {};\n", tensor, fmt::format(fmt::runtime(value), position));
  }

  // A score with sums along the keys, which are small.
  std::string sums() {
    const std::string gate =
        pick({"_g[b, h, kv_idx]", "_g[0, h, kv_idx]", "_g[b, 0, Skv - 1 - kv_idx]"});
    const std::string summed =
        pick({"tanh({0})", "where(kv_idx % 3 == 0, 0.5, sin({0}))", "{0} / (4 + abs({0}))"});
    const std::string score =
        pick({"score - _s[kv_idx]", "score + _s[min(q_raw, Skv - 1)] - _s[kv_idx]",
              "score * (1 + _s[kv_idx] / 8)"});
    return fmt::format("  tensor _g: {}[B, Hq, Skv];\n  let _s = cumsum({} / Skv);\n  score {};\n",
                       dtype_of(true), fmt::format(fmt::runtime(summed), gate), score);
  }

  std::string epilogue() {
    return pick({"  tensor _e: bf16[B, Hq, Sq, D];\n  gate sigmoid(_e[b, h, q_raw, d_idx]);\n",
                 "  tensor _e: f32[Hq, D];\n  epilogue o * _e[h, d_idx] + 0.25 * tanh(o);\n",
                 "  tensor _e: f16[B, Sq, Hq];\n  gate silu(_e[b, q_raw, h]);\n",
                 "  tensor _e: f32[D + 3];\n  gate 1 + 0.5 * (h % 2);\n"
                 "  epilogue where(d_idx % 3 == 0, o, 0.5 * o + _e[d_idx + 2]);\n"});
  }

  std::string declared() const {
    std::string text = "  param _p: f32;\n";
    for (const Tensor& tensor : tensors_) text += declaration(tensor);
    return text;
  }

  static bool is_real(const std::string& dtype) { return dtype[0] == 'f' || dtype == "bf16"; }

  static std::string declaration(const Tensor& tensor) {
    std::string extents, sum = "1";
    for (std::size_t i = 0; i < std::max<std::size_t>(1, tensor.axes.size()); ++i) {
      extents += (i == 0 ? "" : ", ") + (tensor.axes.empty() ? std::to_string(tensor.extent)
                                                             : extent_name(tensor.axes[i]));
      sum += fmt::format(" + i{} * {}", i, 2 * i + 1);
    }
    std::string values;
    if (!is_real(tensor.dtype)) values = fmt::format(" = ({}) // 3 % 5", sum);
    if (tensor.dtype == "bool") values = fmt::format(" = ({}) % 3 != 0", sum);
    return fmt::format("  tensor {}: {}[{}]{};\n", tensor.name, tensor.dtype, extents, values);
  }

  static std::string extent_name(char axis) {
    switch (axis) {
      case 'b': return "B";
      case 'h': return "Hq";
      case 'q': return "Sq";
      default: return "Skv";
    }
  }

  static std::string index_name(char axis) {
    switch (axis) {
      case 'b': return "b";
      case 'h': return "h";
      case 'q': return "q_raw";
      default: return "kv_idx";
    }
  }

  // Tensors

  std::string axes() {
    if (one_in(4)) return "";
    std::string chosen;
    for (const char axis : {'b', 'h', 'q', 'k'}) {
      if (one_in(2)) chosen += axis;
    }
    if (chosen.size() > 1 && one_in(8)) std::swap(chosen[0], chosen[1]);
    return chosen;
  }

  const Tensor& tensor(bool real, bool boolean) {
    std::vector<std::size_t> known;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (is_real(tensors_[i].dtype) == (real && !boolean) &&
          (tensors_[i].dtype == "bool") == boolean) {
        known.push_back(i);
      }
    }
    if (!known.empty() && (tensors_.size() > 5 || one_in(2))) {
      return tensors_[known[below(static_cast<unsigned>(known.size()))]];
    }
    Tensor made{fmt::format("_t{}", tensors_.size()), boolean ? "bool" : dtype_of(real), axes(),
                size({32, 7, 64})};
    tensors_.push_back(std::move(made));
    return tensors_.back();
  }

  std::string dtype_of(bool real) {
    return real ? pick({"f32", "bf16", "f16", "f64"}) : pick({"i32", "i32", "i64", "i8", "u8"});
  }

  std::string load(const Tensor& from, unsigned depth) {
    const Tensor read = from;  // copied: the index may declare more tensors
    if (read.axes.empty()) return fmt::format("{}[{}]", read.name, index(read.extent, depth));
    std::string indices;
    for (const char axis : read.axes) indices += (indices.empty() ? "" : ", ") + index_name(axis);
    return fmt::format("{}[{}]", read.name, indices);
  }

  // An index from 0 to extent - 1.
  std::string index(std::int64_t extent, unsigned depth) {
    const Integer at = integer(std::min(depth, 2U));
    if (at.low >= 0 && at.high < extent) return at.text;
    return one_in(2) ? fmt::format("({}) % {}", at.text, extent)
                     : fmt::format("clamp({}, 0, {})", at.text, extent - 1);
  }

  // Integers

  Integer narrowed(Integer x, std::int64_t most) {
    if (x.most() <= most) return x;
    return {fmt::format("({}) % {}", x.text, most), 0, most - 1};
  }

  Integer integer(unsigned depth) {
    if (depth == 0 || one_in(4)) return integer_leaf(depth);
    switch (below(9)) {
      case 0:
      case 1:
      case 2: return sum_or_product(integer(depth - 1), integer(depth - 1));
      case 3: return quotient(integer(depth - 1), depth - 1);
      case 4: return extremum(integer(depth - 1), integer(depth - 1));
      case 5: return integer_function(integer(depth - 1));
      case 6: return bits(depth - 1);
      case 7: return integer_choice(depth - 1);
      default: return integer_reduction(depth - 1);
    }
  }

  Integer integer_leaf(unsigned depth) {
    const std::int64_t shift = bottom_right_ ? sizes_.columns - sizes_.rows : 0;
    switch (below(9)) {
      case 0:
      case 1: return {"q_idx", shift, shift + sizes_.rows - 1};
      case 2:
      case 3: return {"kv_idx", 0, sizes_.columns - 1};
      case 4: return {"h", 0, sizes_.heads - 1};
      case 5: return {"b", 0, sizes_.batch - 1};
      case 6: return {"Skv", sizes_.columns, sizes_.columns};
      case 7: {
        const std::int64_t value = size({1, 2, 3, 5, 16, 37, 64});
        return {std::to_string(value), value, value};
      }
      default: return {load(tensor(false, false), depth), 0, 4};
    }
  }

  Integer sum_or_product(const Integer& x, const Integer& y) {
    switch (below(3)) {
      case 0: return narrowed({paired(x, "+", y), x.low + y.low, x.high + y.high}, kWidest);
      case 1: return narrowed({paired(x, "-", y), x.low - y.high, x.high - y.low}, kWidest);
      default: {
        if (x.most() * y.most() > kWidest) return extremum(x, y);
        const std::int64_t most = x.most() * y.most();
        return {paired(x, "*", y), x.low >= 0 && y.low >= 0 ? 0 : -most, most};
      }
    }
  }

  static std::string paired(const Integer& x, std::string_view sign, const Integer& y) {
    return fmt::format("({} {} {})", x.text, sign, y.text);
  }

  Integer quotient(const Integer& x, unsigned depth) {
    if (one_in(4)) {
      const Integer y = narrowed(integer(depth), 50);
      const std::string divisor = fmt::format("max(1, {})", y.text);
      if (one_in(2)) return {fmt::format("({} % {})", x.text, divisor), 0, 50};
      return {fmt::format("({} // {})", x.text, divisor), std::min<std::int64_t>(x.low, 0),
              x.most()};
    }
    const std::int64_t y = size({2, 3, 4, 7, 16, 32, 64, -3});
    if (one_in(2)) {
      return {fmt::format("({} % {})", x.text, y), std::min<std::int64_t>(0, y + 1),
              std::max<std::int64_t>(0, y - 1)};
    }
    const std::int64_t most = x.most() / std::abs(y) + 1;
    return {fmt::format("({} // {})", x.text, y), x.low >= 0 && y > 0 ? 0 : -most, most};
  }

  Integer extremum(const Integer& x, const Integer& y) {
    if (one_in(2)) {
      return {fmt::format("min({}, {})", x.text, y.text), std::min(x.low, y.low),
              std::min(x.high, y.high)};
    }
    return {fmt::format("max({}, {})", x.text, y.text), std::max(x.low, y.low),
            std::max(x.high, y.high)};
  }

  Integer integer_function(const Integer& x) {
    switch (below(5)) {
      case 0: return {fmt::format("abs({})", x.text), 0, x.most()};
      case 1: return {fmt::format("(-({}))", x.text), -x.high, -x.low};
      case 2: return {fmt::format("clamp({}, -9, 21)", x.text), -9, 21};
      case 3: {
        const Integer base = narrowed(x, 300);
        return {fmt::format("({}) ** 2", base.text), 0, base.most() * base.most()};
      }
      default: {
        const Integer scaled = narrowed(x, 4096);
        return {fmt::format("int(0.25 * {})", scaled.text), -scaled.most(), scaled.most()};
      }
    }
  }

  Integer bits(unsigned depth) {
    const Integer x = integer(depth);
    if (one_in(3)) return shifted(x);
    if (one_in(4)) return {fmt::format("(~{})", x.text), -x.high - 1, -x.low - 1};
    const Integer y = integer(depth);
    const std::int64_t power = power_above(std::max(x.most(), y.most()));
    const bool natural = x.low >= 0 && y.low >= 0;
    const std::int64_t low = natural ? 0 : -power;
    if (one_in(3)) {
      const std::string name = pick({"band", "bor", "bxor"});
      return {fmt::format("{}({}, {})", name, x.text, y.text), low, power};
    }
    return {paired(x, pick({"&", "|", "^"}), y), low, power};
  }

  Integer shifted(const Integer& x) {
    if (one_in(2)) return {fmt::format("({} >> 2)", x.text), x.low >> 2, x.high >> 2};
    const Integer y = narrowed(x, kWidest / 8);
    if (one_in(2)) return {fmt::format("shl({}, 1)", y.text), 2 * y.low, 2 * y.high};
    return {fmt::format("({} << 3)", y.text), 8 * y.low, 8 * y.high};
  }

  Integer integer_choice(unsigned depth) {
    const std::string condition = boolean(depth, false);
    const Integer x = integer(depth), y = integer(depth);
    return {fmt::format("where({}, {}, {})", condition, x.text, y.text), std::min(x.low, y.low),
            std::max(x.high, y.high)};
  }

  Integer integer_reduction(unsigned depth) {
    const Integer x = narrowed(integer(depth), 5000);
    const std::string reduction = pick({"sum", "min", "max"});
    return {fmt::format("{}(j in 1..4: {} - 2 * j)", reduction, x.text), -3 * x.most() - 20,
            3 * x.most() + 20};
  }

  // Booleans

  std::string boolean(unsigned depth, bool may_score) {
    if (depth == 0 || one_in(6)) return boolean_leaf(depth);
    switch (below(10)) {
      case 0:
      case 1: return comparison(depth - 1);
      case 2: return real_comparison(depth - 1, may_score);
      case 3:
      case 4:
        return fmt::format("({} {} {})", boolean(depth - 1, may_score), pick({"&&", "||"}),
                           boolean(depth - 1, may_score));
      case 5: return fmt::format("{}({})", pick({"!", "~"}), boolean(depth - 1, may_score));
      case 6:
        return fmt::format("(({}) {} ({}))", boolean(depth - 1, may_score), pick({"&", "|", "^"}),
                           boolean(depth - 1, may_score));
      case 7:
        return fmt::format("{}(j in 0..3: {} {} j)", pick({"any", "all"}),
                           narrowed(integer(depth - 1), 9).text, pick({"==", "!=", ">="}));
      case 8:
        return fmt::format("({} <= {} < {})", integer(depth - 1).text, integer(depth - 1).text,
                           integer(depth - 1).text);
      default:
        return fmt::format("where({}, {}, {})", boolean(depth - 1, may_score),
                           boolean(depth - 1, may_score), boolean(depth - 1, may_score));
    }
  }

  std::string boolean_leaf(unsigned depth) {
    switch (below(6)) {
      case 0: return "q_idx >= kv_idx";
      case 1: return "q_idx - kv_idx < _w";
      case 2: return "abs(q_idx - kv_idx) <= 21";
      case 3: return fmt::format("kv_idx % {} == 0", pick({"2", "3", "4"}));
      case 4: return load(tensor(true, true), depth);
      default: return fmt::format("q_idx {} {}", pick({"<", ">=", "!="}), pick({"5", "40"}));
    }
  }

  std::string comparison(unsigned depth) {
    return fmt::format("({} {} {})", integer(depth).text, pick({"<", "<=", ">", ">=", "==", "!="}),
                       integer(depth).text);
  }

  // Uses == and != only if both sides are exact.
  std::string real_comparison(unsigned depth, bool may_score) {
    const Real x = real(depth, may_score), y = real(depth, may_score);
    if (x.exact() && y.exact()) {
      return fmt::format("({} {} {})", x.text, pick({"<", "<=", ">", ">=", "==", "!="}), y.text);
    }
    const std::string sign = pick({"<", "<=", ">", ">="});
    if (x.may_jump() && y.may_jump()) return fmt::format("({} {} {})", x.text, sign, y.text);
    return fmt::format("({} {} {})", x.text, sign, pick({"0.31371", "-0.71823", "1.41377"}));
  }

  // Reals

  Real limited(const Real& x, double most) {
    if (x.most <= most) return x;
    const unsigned way = below(3);
    if (way == 0 && !stays_within_) {
      return rounded(fmt::format("({} * tanh({} / {}))", most, x.text, most), most, x.scored);
    }
    if (way < 2) {
      return held(fmt::format("clamp({}, -{}, {})", x.text, most, most), most, x.fraction,
                  x.scored);
    }
    return rounded(fmt::format("({} / {:.1f})", x.text, std::ceil(x.most / most)), most, x.scored);
  }

  Real real(unsigned depth, bool may_score) {
    if (depth == 0 || one_in(5)) return real_leaf(depth, may_score);
    switch (below(10)) {
      case 0:
      case 1:
      case 2: return arithmetic(real(depth - 1, may_score), real(depth - 1, may_score));
      case 3:
      case 4: return function(real(depth - 1, may_score));
      case 5: return real_extremum(real(depth - 1, may_score), real(depth - 1, may_score));
      case 6: return choice(depth - 1, may_score);
      case 7: return step(real(depth - 1, may_score));
      case 8: return power(real(depth - 1, may_score));
      default: return real_reduction(depth - 1, may_score);
    }
  }

  Real real_leaf(unsigned depth, bool may_score) {
    switch (may_score ? below(8) : 2 + below(6)) {
      case 0:
      case 1: return rounded("score", kScore, true);
      case 2: return held(pick({"0.5", "0.25", "1.5", "-0.75", "2"}), 2, 2, false);
      case 3: return rounded(load(tensor(true, false), depth), 6, false);
      case 4: return held("_p", 1, 2, false);
      case 5:
        return held(fmt::format("float({})", boolean(std::min(depth, 1U), false)), 1, 0, false);
      case 6: return scaled(integer(std::min(depth, 2U)));
      default:
        return rounded(fmt::format("(0.013 * {})", integer(std::min(depth, 1U)).text), kLargest,
                       false);
    }
  }

  // An integer divided by 8.
  Real scaled(const Integer& x) {
    const Integer small = narrowed(x, 500);
    return held(fmt::format("(0.125 * {})", small.text), static_cast<double>(small.most()) / 8, 3,
                false);
  }

  Real arithmetic(const Real& x, const Real& y) {
    const bool scored = x.scored || y.scored;
    switch (below(4)) {
      case 0:
        return held(fmt::format("({} + {})", x.text, y.text), x.most + y.most, common(x, y),
                    scored);
      case 1:
        return held(fmt::format("({} - {})", x.text, y.text), x.most + y.most, common(x, y),
                    scored);
      case 2: {
        const Real a = limited(x, 40), b = limited(y, 40);
        const int fraction = a.exact() && b.exact() ? a.fraction + b.fraction : -1;
        return held(fmt::format("({} * {})", a.text, b.text), a.most * b.most, fraction, scored);
      }
      default:
        return rounded(fmt::format("({} / (1.25 + abs({})))", x.text, y.text), x.most, scored);
    }
  }

  Real within(const Real& of, double most) { return stays_within_ ? limited(of, most) : of; }

  Real function(const Real& of) {
    const auto call = [&](std::string_view name, const std::string& argument, double most) {
      return rounded(fmt::format("{}({})", name, argument), most, of.scored);
    };
    switch (below(13)) {
      case 0: return call(pick({"tanh", "sigmoid", "erf"}), within(of, 2).text, 1);
      case 1: return call(pick({"sin", "cos"}), limited(of, 6).text, 1);
      case 2: return call("tan", limited(of, 1).text, 2);
      case 3: return call(pick({"exp", "exp2"}), limited(of, 3).text, 21);
      case 4: return call(pick({"exp", "exp2"}), fmt::format("-abs({})", within(of, 12).text), 1);
      case 5: return call(pick({"log", "log2"}), fmt::format("0.5 + abs({})", of.text), 11);
      case 6: return call("sqrt", fmt::format("abs({})", of.text), 40);
      case 7: return call("rsqrt", fmt::format("0.25 + abs({})", of.text), 2);
      case 8: return call(pick({"gelu", "silu", "softplus"}), limited(within(of, 2), 12).text, 13);
      case 9: return call("relu", of.text, of.most);
      case 10:
      case 11: return any_function(limited(of, 0.5));
      default: return held(fmt::format("abs({})", of.text), of.most, of.fraction, of.scored);
    }
  }

  // A function of numbers from 0.5 to 1, for which every function has values.
  Real any_function(const Real& of) {
    const ir::RealFunction& function =
        ir::real_functions()[Decisions::index(ir::real_functions().size())];
    const std::string x = fmt::format("0.5 + abs({})", of.text);
    const masks::RealRange small{0.5, 1, false};
    const masks::RealRange range = masks::real_range(function.op, small, small);
    const double most = std::max(std::abs(range.low), std::abs(range.high));
    return rounded(call_of(function, x, "0.75"), std::min(most, kLargest), of.scored);
  }

  Real real_extremum(const Real& x, const Real& y) {
    const std::string name = pick({"min", "max", "minimum", "maximum"});
    return held(fmt::format("{}({}, {})", name, x.text, y.text), std::max(x.most, y.most),
                common(x, y), x.scored && y.scored);
  }

  // A select with small branches, so that a jump changes the score only a little.
  Real choice(unsigned depth, bool may_score) {
    const std::string condition = boolean(std::min(depth, 2U), may_score);
    const Real x = limited(real(depth, may_score), 4), y = limited(real(depth, may_score), 4);
    return held(fmt::format("where({}, {}, {})", condition, x.text, y.text),
                std::max(x.most, y.most), common(x, y), x.scored && y.scored);
  }

  Real step(const Real& of) {
    if (!of.may_jump()) return rounded(fmt::format("-{}", of.text), of.most, of.scored);
    const int fraction = of.exact() ? 0 : -1;
    switch (below(4)) {
      case 0: return held(fmt::format("floor({})", of.text), of.most + 1, fraction, of.scored);
      case 1: return held(fmt::format("ceil({})", of.text), of.most + 1, fraction, of.scored);
      case 2:
        return held(fmt::format("({} // {})", of.text, pick({"2.0", "0.5", "4.0"})),
                    2 * of.most + 1, fraction, of.scored);
      default:
        return held(fmt::format("({} % {})", of.text, pick({"2.0", "0.5", "4.0"})), 4,
                    of.exact() ? std::max(1, of.fraction) : -1, of.scored);
    }
  }

  Real power(const Real& of) {
    const Real small = limited(of, 8);
    switch (below(3)) {
      case 0:
        return held(fmt::format("({}) ** 2", small.text), small.most * small.most,
                    small.exact() ? 2 * small.fraction : -1, of.scored);
      case 1:
        return rounded(
            fmt::format("(0.5 + abs({})) ** {}", small.text, pick({"0.5", "1.5", "-1", "_p"})), 26,
            of.scored);
      default: return rounded(fmt::format("pow(0.5 + abs({}), 0.75)", small.text), 6, of.scored);
    }
  }

  Real real_reduction(unsigned depth, bool may_score) {
    const Real x = real(std::min(depth, 2U), may_score);
    const std::string reduction = pick({"sum", "min", "max"});
    return rounded(fmt::format("{}(j in 1..4: {} * (0.25 * j))", reduction, x.text), 2 * x.most,
                   x.scored);
  }

  // Whole clauses

  std::string new_score() {
    const Real change = limited(real(one_in(6) ? 4 : 1 + below(3), true), kFinal);
    if (one_in(3)) return change.text;
    return fmt::format("score {} {}", pick({"+", "-"}), limited(change, 4).text);
  }

  std::string mask() {
    switch (below(6)) {
      case 0: return "q_idx >= kv_idx";
      case 1: return "abs(q_idx - kv_idx) <= _w";
      case 2: return fmt::format("{} || kv_idx < 3", boolean(2, false));
      default: return boolean(one_in(6) ? 3 : 1 + below(2), false);
    }
  }

  TypedSizes sizes_;
  bool bottom_right_ = false;
  // Whether functions stay away from bounds that f32 rounds them to, so that floor(erf(score)) is
  // the same. (Other specs keep their numbers.)
  bool stays_within_ = false;
  bool sink_ = false;
  bool has_branches_ = false;
  std::string dtype_;
  std::vector<Tensor> tensors_;
};

}  // namespace

std::string typed_spec_of(std::span<const std::uint8_t> decisions) {
  return TypedSpec(decisions).run();
}

std::string typed_clauses(std::span<const std::uint8_t> decisions, const TypedSizes& sizes,
                          bool bottom_right) {
  return TypedSpec(decisions).clauses(sizes, bottom_right);
}

std::string typed_decisions(std::uint64_t number) {
  constexpr std::size_t kDecisions = 2048;
  graph::testing::Random random(number);
  std::string decisions;
  for (std::size_t i = 0; i < kDecisions; ++i) decisions += static_cast<char>(random.bits() >> 56);
  return decisions;
}

std::string typed_spec(std::uint64_t number) {
  const std::string decisions = typed_decisions(number);
  return typed_spec_of({reinterpret_cast<const std::uint8_t*>(decisions.data()), decisions.size()});
}

}  // namespace attn::fuzz
