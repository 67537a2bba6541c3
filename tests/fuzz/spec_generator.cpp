#include "tests/fuzz/spec_generator.h"

#include <fmt/format.h>

#include "tests/fuzz/decisions.h"
#include "tests/fuzz/functions.h"

namespace attn::fuzz {
namespace {

// Generates expressions by their likely type.
class Generator : Decisions {
 public:
  using Decisions::Decisions;

  std::string run() {
    std::string text = one_in(3) ? "import \"masks.attn\";\n" : "";
    if (!one_in(8)) text += function("f1", "a") + function("f2", "a, c2");
    text += fmt::format("attention f(w = {}, c = 0.5) {{\n", number());
    text += dims();
    text += "tensor t: i32[B, Skv]" + std::string(one_in(4) ? " monotone" : "") +
            (one_in(3) ? " = i1 // " + number() : "") + ";\nlearn s: f32[Hq]; param p: f32;\n";
    if (one_in(4)) text += "lengths " + pick({"q", "kv", "q, kv", "kv = Skv - i0"}) + ";\n";
    if (one_in(3)) text += "align " + pick({"bottom_right", "top_left"}) + ";\n";
    text += "let x0 = kv_idx // 2; let x1 = 0.5 * score; let x2 = q_idx > 3;\n";
    if (!one_in(8)) text += function("g", "a, c2");
    for (unsigned i = 1 + below(4); i > 0; --i) text += clause();
    return text + "}\n";
  }

 private:
  std::string number() { return pick({"1", "2", "3", "7", "0", "64", "129", "1000000", "0x1f"}); }

  std::string low() { return pick({"0", "1", "-1", "-64", "Skv - 4", "-w"}); }

  std::string dims() {
    return "dims B = " + pick({"2", "1", "{1, 2}"}) + ", Hq = " + pick({"4", "6"}) +
           ", Hkv = " + pick({"1", "2", "Hq"}) + ", Sq" + pick({" = 16", "", " = {8, 129}"}) +
           ", Skv" + pick({" = Sq", " = 33", ""}) + ", D = " + pick({"64", "8", "100"}) + ";\n";
  }

  // A function whose body does not depend on the clauses of the attention.
  std::string function(const std::string& name, const std::string& parameters) {
    const std::string piece = pick({"a * 2", "abs(a)", "a + kv_idx", "where(a > 0, a, b)", "t[a]",
                                    "max(a, q_idx) % 7", "any(j in 0..3: a == j)"});
    const std::string body =
        one_in(2) ? "= " + piece + ";\n" : "{ u = " + piece + "\n return u + a }\n";
    return fmt::format("fn {}({}) {}", name, parameters, body);
  }

  std::string clause() {
    switch (below(13)) {
      case 0: return "score " + real(4) + ";\n";
      case 1: return "mask " + boolean(4) + ";\n";
      case 2:
        return fmt::format(fmt::runtime(one_in(6) ? "let y{} = cumsum({});\n" : "let y{} = {};\n"),
                           below(8), expression(3));
      case 3: return "scale " + pick({"0.5", "p", "1 / sqrt(D)", "rsqrt(D) * c"}) + ";\n";
      case 4: return "sink " + pick({"s[h]", "s[h] * p", "0", "s[0]", "q_idx"}) + ";\n";
      case 5: return "dropout " + pick({"0.1", "c", "0.5, kv_idx % 2 == 0", "1"}) + ";\n";
      case 6:
        return "layout " +
               pick({"bshd", "thd", "paged(page = 64)", "paged(page = 64, strides = bound)",
                     "thd(strides = bound)", "packed_qkv", "q: bhsd, k: strides(1, 2, 3, 4)"}) +
               ";\n";
      case 7: return "outputs " + pick({"o, lse", "o, max, sum_exp", "lse", "o, o"}) + ";\n";
      case 10: return "weight " + real(3) + (one_in(2) ? " / sum(" + real(3) + ");\n" : ";\n");
      case 8: return "normalize " + pick({"sigmoid", "softmax", "none"}) + ";\n";
      case 9:
        return "dtype e4m3; quantize per_tensor" +
               pick({"", ", o: bf16", ", do: e5m2, scale_s = 256", ", scale_s = c", ", o: c"}) +
               ";\n";
      case 11:
        return pick({"epilogue o * p + s[h]", "epilogue where(o > 0, o, c * d_idx)",
                     "gate sigmoid(s[d_idx % Hq])", "gate " + real(3)}) +
               ";\n";
      default: return "grad q, " + pick({"k, v", "s", "t"}) + "; deterministic;\n";
    }
  }

  std::string expression(unsigned depth) {
    switch (below(3)) {
      case 0: return integer(depth);
      case 1: return real(depth);
      default: return boolean(depth);
    }
  }

  std::string integer(unsigned depth) {
    if (depth == 0) {
      return pick(
          {"q_idx", "kv_idx", "b", "h", "1", "2", "w", "t[b, kv_idx]", "Sq", "q_raw", "x0", "-3"});
    }
    const std::string x = integer(depth - 1), y = integer(depth - 1);
    switch (below(10)) {
      case 0: return fmt::format("({} {} {})", x, pick({"+", "-", "*", "//", "%"}), y);
      case 1: return fmt::format("{} {} {}", x, pick({"&", "|", "^", "<<", ">>"}), y);
      case 2: return fmt::format("{}({}, {})", pick({"min", "max"}), x, y);
      case 3: return fmt::format("{}({})", pick({"abs", "int", "bnot", "f1"}), x);
      case 4: return fmt::format("t[{}, {}]", pick({"b", "0", "h"}), x);
      case 5: return fmt::format("where({}, {}, {})", boolean(depth - 1), x, y);
      case 6: return fmt::format("sum(j in {}..{}: {} * j)", low(), number(), x);
      case 7: return fmt::format("clamp({}, 0, {})", x, y);
      case 8: return fmt::format("{} ** {}", x, pick({"2", "3", "0"}));
      default: return fmt::format("int({})", real(depth - 1));
    }
  }

  std::string real(unsigned depth) {
    if (depth == 0) return pick({"score", "p", "0.5", "s[h]", "c", "inf", "1e-3", "q_idx", "x1"});
    const std::string x = real(depth - 1), y = real(depth - 1);
    switch (below(8)) {
      case 0: return fmt::format("({} {} {})", x, pick({"+", "-", "*", "/", "//", "%"}), y);
      case 1:
        return fmt::format("{}({})",
                           pick({"floor", "ceil", "gelu", "silu", "softplus", "relu", "float"}), x);
      case 6: return call_of(ir::real_functions()[index(ir::real_functions().size())], x, y);
      case 2: return fmt::format("where({}, {}, {})", boolean(depth - 1), x, y);
      case 3: return fmt::format("{}({}, {})", pick({"min", "max", "pow", "f2", "g"}), x, y);
      case 4: return fmt::format("{} ** {}", x, pick({"2", "0.5", "-1"}));
      case 5: return fmt::format("-{}", x);
      default: return fmt::format("max(j in 1..4: {} * j)", x);
    }
  }

  std::string boolean(unsigned depth) {
    if (depth == 0) return pick({"true", "q_idx >= kv_idx", "false", "x2", "x2", "b == 0"});
    switch (below(8)) {
      case 0:
        return fmt::format("({} {} {})", integer(depth - 1),
                           pick({"<", "<=", ">", ">=", "==", "!="}), integer(depth - 1));
      case 1:
        return fmt::format("({} {} {})", boolean(depth - 1), pick({"&&", "||"}),
                           boolean(depth - 1));
      case 2: return fmt::format("{}({})", pick({"!", "~"}), boolean(depth - 1));
      case 3: return fmt::format("any(j in {}..{}: {} == j)", low(), number(), integer(depth - 1));
      case 4: return fmt::format("(0 <= {} < {})", integer(depth - 1), integer(depth - 1));
      case 5: return fmt::format("({} > {})", real(depth - 1), real(depth - 1));
      case 6: return fmt::format("isnan({})", real(depth - 1));
      default: return fmt::format("({} & ~{})", boolean(depth - 1), boolean(depth - 1));
    }
  }
};

}  // namespace

std::string spec_of(std::span<const std::uint8_t> decisions) { return Generator(decisions).run(); }

}  // namespace attn::fuzz
