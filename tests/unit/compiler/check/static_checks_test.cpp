// What is refused, or warned of, since it is wrong whatever is bound. Where a score has no value
// the reference evaluator says the same.
#include "compiler/check/static_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "compiler/ast/parse.h"
#include "compiler/driver/driver.h"
#include "compiler/reference/evaluate.h"
#include "runtime/io/host_tensor.h"

namespace attn::check {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Codes = std::set<std::string>;

constexpr const char* kSizes = "dims B = 2, Hq = 4, Hkv = 2, Sq = 8, Skv = 12, D = 8; ";

struct Checked {
  Codes codes;
  std::string text;
  bool stopped = false;
};

Checked check_text(const std::string& text, const sema::Bindings& bindings = {}) {
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  driver::front_end(source, bindings, sink);
  Checked checked{{}, diag::to_text(sink), sink.is_stopped()};
  for (const diag::Diagnostic& found : sink.sorted()) checked.codes.emplace(id_of(found.code));
  return checked;
}

std::string spec_of(const std::string& clauses) {
  return "import \"masks.attn\"; import \"scores.attn\"; attention x { " + std::string(kSizes) +
         clauses + " }";
}

Codes codes_of(const std::string& clauses) { return check_text(spec_of(clauses)).codes; }

// Whether the reference, given zeros for every tensor, finds an operation without a value.
bool reference_refuses(const std::string& clauses) {
  const std::string text = spec_of(clauses);
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  const auto spec = ast::parse(source, sink);
  const auto attention = sema::analyze(*spec, {}, sink);
  EXPECT_TRUE(attention) << diag::to_text(sink);
  reference::Inputs inputs;
  const auto add = [&](const std::string& name, DType dtype, std::vector<std::int64_t> dims) {
    io::HostTensor tensor{dtype, std::move(dims), {}};
    tensor.values.assign(static_cast<std::size_t>(io::element_count(tensor.dims)), 0);
    inputs.tensors[name] = std::move(tensor);
  };
  add("q", attention->dtype, {2, 4, 8, 8});
  add("k", attention->dtype, {2, 2, 12, 8});
  add("v", attention->dtype, {2, 2, 12, 8});
  for (const ir::CapturedTensor& tensor : attention->tensors) {
    std::vector<std::int64_t> dims;
    for (const ir::ExprId extent : tensor.extents) {
      dims.push_back(*ir::fold_integer(attention->dag, extent));
    }
    add(tensor.name, tensor.dtype, std::move(dims));
  }
  return !reference::evaluate(*attention, inputs, {}).ok();
}

struct Fault {
  const char* clauses;
  const char* code;  // or empty: served
};

// Faults without tensors whose values decide: check and the reference agree on every one.
constexpr Fault kFaults[] = {
    {"tensor t: f32[2]; score score + t[h];", "E0340"},
    {"tensor t: f32[4]; score score * t[h];", ""},
    {"tensor t: f32[B, Skv]; score score * t[q_idx, b];", "E0340"},
    {"tensor t: f32[Sq, Skv]; score score + t[q_idx, kv_idx + 1];", "E0340"},
    {"tensor t: f32[Sq, Skv]; score score + t[q_idx - kv_idx, 0];", "E0340"},
    // Guarded by a select, by the same as booleans, by a mask, by another mask.
    {"tensor t: f32[Sq, Skv]; score score + where(kv_idx + 1 < Skv, t[q_idx, kv_idx + 1], 0);", ""},
    {"tensor t: f32[Sq, Skv]; score score + where(kv_idx < Skv, t[q_idx, kv_idx + 1], 0);",
     "E0340"},
    {"tensor t: bool[Skv]; mask kv_idx + 1 < Skv && t[kv_idx + 1];", ""},
    {"tensor t: bool[Skv]; mask kv_idx + 1 >= Skv || t[kv_idx + 1];", ""},
    {"tensor t: bool[Skv]; mask kv_idx + 1 >= Skv && t[kv_idx + 1];", "E0340"},
    {"tensor t: f32[Skv]; score score + t[kv_idx + 1]; mask kv_idx < 11;", ""},
    {"tensor t: f32[Skv]; score score + t[kv_idx + 1]; mask kv_idx != 11;", ""},
    {"tensor t: f32[Skv]; score score + t[kv_idx + 1]; mask kv_idx >= q_idx;", "E0340"},
    {"tensor t: f32[Skv]; score score + t[kv_idx + 5]; mask q_idx >= kv_idx;", "E0340"},
    {"tensor t: f32[Skv]; score score + t[kv_idx + 4]; mask q_idx >= kv_idx;", ""},
    {"tensor t: f32[Sq]; score score + t[q_idx - kv_idx]; mask q_idx >= kv_idx;", ""},
    {"tensor t: f32[Sq]; score score + t[q_idx - kv_idx - 1]; mask q_idx >= kv_idx;", "E0340"},
    {"tensor t: bool[Skv]; mask t[kv_idx + 1]; mask kv_idx < 11;", ""},
    {"tensor t: f32[2]; score where(h < 2, score + t[min(h, 1)], score);", ""},
    {"tensor t: f32[5]; score score + t[clamp(q_idx - kv_idx, -2, 2) + 2];", ""},
    {"tensor t: f32[4]; score score + t[clamp(q_idx - kv_idx, -2, 2) + 2];", "E0340"},
    {"tensor t: f32[3]; score score + t[(q_idx + kv_idx) % 3];", ""},
    {"tensor t: f32[2]; score score + t[(q_idx + kv_idx) % 3];", "E0340"},
    {"tensor t: f32[3]; sink t[h];", "E0340"},
    {"tensor t: f32[2]; mask h < 2; sink t[h];", "E0340"},  // hidden rows have a sink too
    {"tensor t: f32[2]; mask h < 2; sink where(h < 2, t[h], 0);", ""},
    {"tensor t: f32[6]; tensor i: i32[Skv]; score score + t[clamp(i[kv_idx], 6, 9)];", "E0340"},
    {"mask q_idx // (kv_idx - kv_idx) == 0;", "E0308"},
    {"mask q_idx % (kv_idx - 3) == 0;", "E0308"},
    {"mask kv_idx > 3 && q_idx % (kv_idx - 3) == 0;", ""},
    {"mask (q_idx >> (kv_idx + 21)) == 0;", "E0308"},
    {"mask (q_idx >> (kv_idx + 20)) == 0;", ""},
};

TEST(StaticFaults, AreWhatTheReferenceRefuses) {
  for (const Fault& fault : kFaults) {
    const Codes expected = *fault.code ? Codes{fault.code} : Codes{};
    EXPECT_EQ(codes_of(fault.clauses), expected) << fault.clauses;
    EXPECT_EQ(reference_refuses(fault.clauses), *fault.code != 0) << fault.clauses;
  }
}

// Tensors, params and lengths may keep an index inside.
TEST(StaticFaults, AreLeftToBindingWhereValuesDecide) {
  for (const char* clauses : {
           "tensor n: i32[B]; tensor t: f32[Skv]; score score + t[kv_idx + 1]; mask kv_idx < n[b];",
           "tensor n: i32[B]; tensor t: f32[Skv]; score where(kv_idx < n[b], t[kv_idx + 1], "
           "score);",
           "tensor i: i32[Skv]; tensor t: f32[4]; score score + t[i[kv_idx]];",
           "param p: i32; tensor t: f32[Skv]; score score + t[kv_idx + p];",
           "param p: i32; mask q_idx // p == 0;",
           "lengths kv; tensor t: f32[Skv]; score score + t[kv_idx + 1];",
           "tensor t: f32[4]; score where(score > 0, t[kv_idx], score);",
       }) {
    EXPECT_THAT(codes_of(clauses), IsEmpty()) << clauses;
  }
  EXPECT_THAT(codes_of("lengths q, kv; tensor t: f32[2]; score score + t[h];"),
              ElementsAre("E0340"));
}

TEST(StaticFaults, AreFoundBesideMasksThatAreNoGuard) {
  for (const char* clauses : {
           "tensor n: i32[B, Skv]; tensor t: f32[2]; score score + t[h]; mask n[b, kv_idx] > 0;",
           "tensor n: i32[B, Skv]; tensor t: f32[2]; score score + t[h];"
           "mask n[b, q_idx] == n[b, kv_idx] && q_idx >= kv_idx;",
           "tensor n: i32[B]; tensor t: bool[2]; mask n[b] > kv_idx && t[h];",
           "param p: i32; tensor t: f32[2]; score score + t[h]; mask kv_idx < p;",
       }) {
    EXPECT_THAT(codes_of(clauses), ElementsAre("E0340")) << clauses;
  }
  EXPECT_THAT(codes_of("tensor n: i32[Hq]; tensor t: f32[2]; score score * t[h]; mask n[h] > 0;"),
              IsEmpty());
}

// Columns of a result are no keys, of which there may be fewer.
TEST(StaticFaults, AreNotThoseOfSumsBesideAnEpilogue) {
  const std::string sums =
      "tensor g: f32[Skv]; let c = cumsum(g[kv_idx]); score score + c[kv_idx]; ";
  EXPECT_THAT(check_text("attention x { dims B = 1, Hq = 1, Sq = 33, Skv = 7, D = 64; " + sums +
                         "tensor e: f32[Dv]; epilogue o * e[d_idx]; }")
                  .text,
              IsEmpty());
}

// One element too few, at the far corner alone.
TEST(StaticFaults, AreFoundAtAnySize) {
  for (const char* size : {"512", "1024", "2048", "4096", "65536", "131072"}) {
    const std::string dims = "attention x { dims B = 1, Hq = 1, D = 8, Sq = " + std::string(size);
    const std::string rest = "]; mask q_idx >= kv_idx; score score + rel[q_idx - kv_idx]; }";
    EXPECT_THAT(check_text(dims + "; tensor rel: f32[Sq - 1" + rest).codes, ElementsAre("E0340"))
        << size;
    const Checked enough = check_text(dims + "; tensor rel: f32[Sq" + rest);
    EXPECT_THAT(enough.codes, IsEmpty()) << size;
    EXPECT_FALSE(enough.stopped) << size;
  }
}

TEST(StaticFaults, AlongDiagonalsAreFoundAtAnySize) {
  for (const char* size : {"1024", "65536", "131072"}) {
    const std::string text = "attention x { dims B = 1, Hq = 1, D = 8, Sq = " + std::string(size) +
                             "; tensor rel: f32[127]; mask q_idx >= kv_idx && q_idx - kv_idx < 128;"
                             " score score + rel[q_idx - kv_idx]; }";
    EXPECT_THAT(check_text(text).codes, ElementsAre("E0340")) << size;
  }
}

TEST(StaticFaults, OfOpenDimensionsAreFoundOnceTheyAreBound) {
  const std::string text =
      "attention x { dims Hq = 2, Sq; tensor t: f32[16]; "
      "score score + t[kv_idx]; }";
  EXPECT_THAT(check_text(text).codes, IsEmpty());
  EXPECT_THAT(check_text(text, {{"Sq", "16"}}).codes, IsEmpty());
  EXPECT_THAT(check_text(text, {{"Sq", "17"}}).codes, ElementsAre("E0340"));
  EXPECT_THAT(check_text("attention x { tensor t: f32[Skv]; score score + t[kv_idx]; }").codes,
              IsEmpty());
  EXPECT_THAT(check_text("attention x { tensor t: f32[Skv]; score score + t[kv_idx - 1]; }").codes,
              ElementsAre("E0340"));
}

TEST(StaticFaults, PointAtTheIndex) {
  EXPECT_THAT(check_text(spec_of("tensor t: f32[Skv]; score score + t[kv_idx + 1];")).text,
              HasSubstr("`kv_idx + 1` reaches 12, but `t` has size 12 along this axis"));
  EXPECT_THAT(
      check_text("attention x {\n tensor t: f32[Hq, 4]; dims Hq = 4, Sq = 8;\n"
                 " score score + t[h, kv_idx - 1];\n}")
          .text,
      HasSubstr("\n 3 |  score score + t[h, kv_idx - 1];\n   |                     ^^^^^^^^^^"));
}

TEST(StaticFaults, TellTheFurthestReach) {
  const std::string sizes = "attention x { dims B = 2, Hq = 1, D = 8, Sq = 64; ";
  const std::string text = check_text(sizes +
                                      "tensor doc: i32[B, Skv]; mask q_idx >= kv_idx; "
                                      "score score + float(doc[q_idx, b] - doc[kv_idx, b]); }")
                               .text;
  EXPECT_THAT(text, HasSubstr("`q_idx` reaches 63"));
  EXPECT_THAT(text, HasSubstr("`kv_idx` reaches 63"));
  EXPECT_THAT(check_text(sizes + "tensor t: f32[Sq]; mask kv_idx > 20 && kv_idx < 40 && "
                                 "q_idx % 3 == 1; score score + t[kv_idx + q_idx]; }")
                  .text,
              HasSubstr("reaches 100"));
}

// The same read, which a `where` guards in the first place.
TEST(StaticFaults, PointAtTheReadThatIsNotGuarded) {
  const std::string guarded = "score score + where(kv_idx + 1 < Skv, t[kv_idx + 1], 0);\n";
  const std::string bare = "score score + t[kv_idx + 1];\n";
  EXPECT_THAT(check_text(spec_of("tensor t: f32[Skv];\n" + guarded + bare)).text,
              HasSubstr("x.attn:3:17"));
  EXPECT_THAT(check_text(spec_of("tensor t: f32[Skv];\n" + bare + guarded + bare)).text,
              HasSubstr("x.attn:2:17"));
  EXPECT_THAT(
      check_text(spec_of("tensor t: f32[Skv];\n"
                         "score where(kv_idx + 1 < Skv, t[kv_idx + 1], 0) + t[kv_idx + 1];"))
          .text,
      HasSubstr("x.attn:2:53"));
}

TEST(StaticFaults, ConstantsThatAreNoNumberAreRefusedAsByTheCompiler) {
  EXPECT_THAT(codes_of("score score + log(-2.0);"), ElementsAre("E0341"));
  EXPECT_THAT(codes_of("sink 0 * inf;"), ElementsAre("E0341"));
  EXPECT_THAT(codes_of("score where(1 < 2, score, log(-2.0));"), IsEmpty());
}

TEST(StaticWarnings, OfScoresThatAreNotFinite) {
  for (const char* clauses : {
           "scale inf;",
           "scale 1 / (Sq - 8);",
           "score score * inf;",
           "score where(kv_idx == 2, inf, score);",
           "score log(score - 100);",
           "score sqrt(score);",
           "score score * 1e39;",
           "score where(score > 0, inf, score);",
           "sink inf;",
           "score where(q_idx >= kv_idx, score, log(q_idx - kv_idx));",
           "tensor n: i32[B]; mask kv_idx < n[b]; score score * inf;",
           "lengths kv; score score * inf;",
       }) {
    const Codes codes = codes_of(clauses);
    EXPECT_TRUE(codes == Codes{"W0340"} || codes == Codes{"W0341"}) << clauses;
  }
}

TEST(StaticWarnings, LeaveAloneWhatIsFinite) {
  for (const char* clauses : {
           "score where(q_idx >= kv_idx, score, -inf);",
           "score where(q_idx >= 4, score, -inf);",
           "score where(q_idx > kv_idx, score + log(q_idx - kv_idx), score);",
           "score score + log(q_idx - kv_idx); mask q_idx > kv_idx;",
           "score where(score > 0, sqrt(score), 0);",
           "tensor t: f32[Hq]; param p: f32; score score / t[h] + p * kv_idx;",
           "tensor t: f32[Hq]; score score + log(t[h]); sink t[h];",
           "score max(-inf, score);",
           "score 30 * tanh(score / 30);",
           "score score / (1 + exp(-score));",
           "score score ** 2;",
           "score sin(score) + tan(score) + gelu(score) + softplus(score);",
           "score alibi(); score relative(); score softcap(20);",
           "param p: f32; scale p / sqrt(D);",
           "sink -inf;",
       }) {
    EXPECT_THAT(codes_of(clauses), IsEmpty()) << clauses;
  }
}

TEST(StaticWarnings, OfDivisionsByZero) {
  EXPECT_THAT(codes_of("score softcap(0);"), ElementsAre("W0341"));
  EXPECT_THAT(codes_of("score score + 1 / (q_idx - kv_idx); mask q_idx >= kv_idx;"),
              ElementsAre("W0341"));
  EXPECT_THAT(codes_of("score score + 1 / (q_idx - kv_idx); mask q_idx > kv_idx;"), IsEmpty());
  EXPECT_THAT(codes_of("score score + where(q_idx != kv_idx, 1 / (q_idx - kv_idx), 0);"),
              IsEmpty());
}

TEST(StaticWarnings, OfIntegersThatWrap) {
  EXPECT_THAT(codes_of("mask q_idx * 500000000 >= kv_idx;"), ElementsAre("W0342"));
  EXPECT_THAT(codes_of("mask q_idx * 300000000 - kv_idx * 300000000 >= 0;"), ElementsAre("W0342"));
  EXPECT_THAT(codes_of("mask (kv_idx + 40000) * (q_idx + 60000) >= 0;"),
              ElementsAre("W0342", "W0540"))
      << "all wrap to negative numbers";
  EXPECT_THAT(codes_of("mask q_idx * 500000000 >= kv_idx; mask kv_idx * 500000000 > 0;"),
              ElementsAre("W0342"));
  EXPECT_THAT(codes_of("mask q_idx * 300000000 >= kv_idx;"), IsEmpty());
  EXPECT_THAT(codes_of("mask q_idx < 4 && q_idx * 500000000 >= kv_idx;"), IsEmpty());
  EXPECT_THAT(codes_of("mask (q_idx + 2147483647 ^ kv_idx) < 250;"), IsEmpty()) << "a sum";
  EXPECT_THAT(codes_of("tensor t: i32[Skv]; mask t[kv_idx] * 1000 >= q_idx;"), IsEmpty());
  EXPECT_THAT(codes_of("mask long(q_idx) * 500000000 >= kv_idx;"), IsEmpty());
}

TEST(StaticChecks, IntegersOf64BitsAreShiftedByUpTo63) {
  const std::string tensor = "tensor t: i64[Sq]; mask (t[q_idx] >> ";
  EXPECT_THAT(codes_of(tensor + "kv_idx & 1) == 1;"), IsEmpty());
  EXPECT_THAT(codes_of(tensor + "kv_idx * 5 & 1) == 1;"), IsEmpty());
  EXPECT_THAT(codes_of(tensor + "kv_idx * 6 & 1) == 1;"), ElementsAre("E0308"));
  EXPECT_THAT(codes_of(tensor + "64 & 1) == 1;"), ElementsAre("E0308"));
  EXPECT_THAT(codes_of("tensor t: i32[Sq]; mask (t[q_idx] >> kv_idx * 3 & 1) == 1;"),
              ElementsAre("E0308"));
}

// Frameworks have 64 bits there.
TEST(StaticWarnings, OfProductsThatWrapBeforeBitsAreTaken) {
  for (const char* mask :
       {"(q_idx * 1000003000 ^ kv_idx) < 250", "(q_idx * 1000003000 & 255) < 250",
        "(q_idx * 1000003000 | kv_idx) < 250", "q_idx * 1000003000 % 7 < 4",
        "(q_idx * 1000003000 % 7 & 1) == 0", "~(q_idx * 1000003000) < 0"}) {
    EXPECT_THAT(codes_of(std::string("mask ") + mask + ";"), ElementsAre("W0342")) << mask;
  }
  EXPECT_THAT(codes_of("mask (q_idx * 1000 ^ kv_idx) < 250;"), IsEmpty());
}

TEST(StaticChecks, IndexesThatWrapAreOutOfRange) {
  EXPECT_THAT(codes_of("tensor t: f32[64];"
                       "score score + t[(q_idx * 400000000 + kv_idx) // 100000000];"),
              ElementsAre("E0340"));
  EXPECT_THAT(codes_of("tensor t: f32[64]; score score + t[(q_idx << 29) // 100000000 + kv_idx];"),
              ElementsAre("E0340"));
  // 2^32 q_idx is 0.
  EXPECT_THAT(codes_of("tensor t: f32[64]; score score + t[q_idx * 65536 * 65536 + kv_idx];"),
              ElementsAre("W0342"));
}

TEST(StaticWarnings, OfMasksThatShowNothing) {
  for (const char* clauses : {"mask window(0);", "mask q_idx < kv_idx; mask kv_idx < q_idx;",
                              "mask q_idx < kv_idx && kv_idx < q_idx;", "mask false;",
                              "mask kv_idx > 11;", "mask kv_idx % 2 == 0 && kv_idx % 2 == 1;",
                              "tensor n: i32[B]; mask kv_idx < n[b] && q_idx > 100;",
                              "score where(q_idx < 0, score, -inf);",
                              "score where(q_idx < kv_idx, score, -inf); mask q_idx >= kv_idx;"}) {
    EXPECT_THAT(codes_of(clauses), ElementsAre("W0540")) << clauses;
  }
  for (const char* clauses : {"mask window(1);", "mask q_idx > kv_idx;", "mask inverse_causal();",
                              "tensor n: i32[B]; mask kv_idx < n[b];", "mask q_idx == 7;"}) {
    EXPECT_THAT(codes_of(clauses), IsEmpty()) << clauses;
  }
  EXPECT_THAT(check_text("import \"masks.attn\"; attention x { mask window(0); }").codes,
              ElementsAre("W0540"))
      << "at any size";
  EXPECT_THAT(check_text("attention x { dims Sq = 4, Skv = 0; mask kv_idx < 0; }").codes, IsEmpty())
      << "there are no keys";
}

TEST(StaticWarnings, BlameTheMaskThatHidesTheRest) {
  const std::string text = check_text(spec_of("\nmask kv_idx % 2 == 0;\nmask q_idx < kv_idx;\n"
                                              "mask kv_idx < q_idx;\nmask kv_idx % 2 == 1;\n"))
                               .text;
  EXPECT_THAT(text, HasSubstr("x.attn:4:6"));
  EXPECT_THAT(text, HasSubstr("contradicts"));
  EXPECT_THAT(text, ::testing::ContainsRegex("3 \\| mask q_idx < kv_idx;\n.*together with this"));
  EXPECT_THAT(text, Not(HasSubstr("2 | mask"))) << "which has no part in it";
  EXPECT_THAT(text, Not(HasSubstr("the smallest useful window is 1")));
  EXPECT_THAT(check_text(spec_of("mask window(0);")).text,
              HasSubstr("the smallest useful window is 1"));
}

TEST(StaticWarnings, OfScoresWithoutQAndK) {
  const std::string tensors = "tensor bias: f32[Hq, Sq, Skv]; ";
  for (const char* score :
       {"score bias[h, q_idx, kv_idx];", "score where(bias[h, q_idx, kv_idx] > 0, 0, -1);",
        "score score * 2; score bias[h, q_idx, kv_idx];"}) {
    EXPECT_THAT(codes_of(tensors + score), ElementsAre("W0541")) << score;
  }
  for (const char* score : {"score 0;", "score score * bias[h, q_idx, kv_idx];", "score -log(Skv);",
                            "score where(q_idx == kv_idx, bias[h, q_idx, kv_idx], score);",
                            "score 0 * score + bias[h, q_idx, kv_idx];"}) {
    EXPECT_THAT(codes_of("tensor bias: f32[Hq, Sq, Skv]; mask bias[h, q_idx, kv_idx] > 0; " +
                         std::string(score)),
                IsEmpty())
        << score;
  }
}

TEST(StaticWarnings, AreNotSearchedForWhereNoPlaceMatters) {
  const Checked checked = check_text(
      "attention x(cap = 0.0) { dims B = 1, Hq = 2, Sq = 4096, D = 8; "
      "mask q_idx - kv_idx < 100; score cap * tanh(score / cap); }");
  EXPECT_THAT(checked.codes, ElementsAre("W0341"));
  EXPECT_FALSE(checked.stopped);
}

TEST(StaticWarnings, OfTheClauseThatDropsQAndK) {
  const std::string tensors = "tensor bias: f32[Hq, Sq, Skv]; ";
  const auto proposes = [&](const std::string& scores, const std::string& proposal) {
    EXPECT_THAT(check_text(spec_of(tensors + scores)).text, HasSubstr(proposal)) << scores;
  };
  proposes("score bias[h, q_idx, kv_idx]; score softcap(50);",
           "write `score score + bias[h, q_idx, kv_idx];`");
  proposes("let x = bias[h, q_idx, kv_idx]; score x; score score * 2;", "write `score score + x;`");
  proposes("score bias[h, q_idx, kv_idx]; let x = score; score kv_idx; score x - score;",
           "write `score score + kv_idx;`");
  proposes("score q_idx | kv_idx;", "write `score score + (q_idx | kv_idx);`");
  proposes("score (q_idx) & (kv_idx);", "write `score score + ((q_idx) & (kv_idx));`");
  proposes("score (q_idx | kv_idx);", "write `score score + (q_idx | kv_idx);`");
  proposes("score q_idx - kv_idx;", "write `score score + q_idx - kv_idx;`");
}

TEST(StaticWarnings, OfTermsThatSoftmaxCancels) {
  const std::string tensors = "tensor _t: f32[Hq, Sq]; tensor _s: f32[Hq]; param _c: f32; ";
  for (const char* clauses :
       {"score score + _t[h, q_idx];", "score 2 * score - _s[h];", "score score + _c;",
        "score -(score - (_c + kv_idx));", "score score + _s[h] * q_idx; outputs o, lse;",
        "score score + _t[h, q_idx]; score score + kv_idx;",
        "score score + where(q_idx < 100000, _t[h, q_idx], log(2));"}) {
    EXPECT_THAT(codes_of(tensors + clauses), ElementsAre("W0542")) << clauses;
  }
  for (const char* clauses :
       {"score score + _s[h] * (kv_idx - q_idx);", "score score + _s[h] * kv_idx - _s[h] * q_idx;",
        "score score * _s[h];", "score tanh(score + _s[h]);", "score score + _s[h]; sink 0;",
        "score score + _s[h]; normalize sigmoid;", "score score + _s[h]; mask kv_idx < _s[h];",
        "score score + q_idx * 0.5;", "score where(kv_idx < 3, score + _s[h], score);",
        "score score + where(q_idx < _c, 0.0, -inf);", "score score + where(_s[h] > 0, 0, -1e30);",
        "score score - where(_s[h] > 0, 0, 1000000);", "score score + (1 - _s[h]) * -10000.0;",
        "score score + log(_t[h, q_idx]);"}) {
    EXPECT_THAT(codes_of(tensors + clauses), IsEmpty()) << clauses;
  }
  EXPECT_THAT(check_text("attention x { dims B, Sq = 4, Skv = 1, D = 8; tensor t: f32[B]; "
                         "score score + t[b]; }")
                  .codes,
              IsEmpty())
      << "a single key";
}

std::string with_masks(int count) {
  std::string text = "attention x { dims B = 1, Hq = 1, Sq = 8192, D = 8; ";
  for (int i = 0; i < count; ++i) {
    text += "mask q_idx * " + std::to_string(1000000 + i) + " != 3; ";
  }
  return text + "}";
}

std::size_t warnings_of(const Checked& checked) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = checked.text.find("warning[W0342]", at)) != std::string::npos;) {
    ++count, ++at;
  }
  return count;
}

// A bounded search, and a bounded number of findings; neither without a word.
TEST(StaticWarnings, OfManyMasksAreFew) {
  const Checked few = check_text(with_masks(20));
  EXPECT_EQ(warnings_of(few), 20U);
  EXPECT_FALSE(few.stopped);
  const Checked many = check_text(with_masks(3000));
  EXPECT_EQ(warnings_of(many), 20U);
  EXPECT_TRUE(many.stopped);
}

// Each of them, where masks that may wrap stand beside it.
TEST(StaticWarnings, OfIntegersThatWrapAreNotLost) {
  const Checked checked = check_text(
      "attention x { dims B = 1, Hq = 1, Sq = 65536, D = 64; "
      "mask q_idx * 1000000 >= kv_idx * 1000000; mask q_idx * kv_idx + 1 > 0; }");
  EXPECT_EQ(warnings_of(checked), 3U);
  EXPECT_THAT(checked.text, HasSubstr("`q_idx * kv_idx` reaches 4294836225"));
}

std::vector<std::filesystem::path> shipped() {
  std::vector<std::filesystem::path> paths;
  const std::filesystem::path root = ATTN_SOURCE_DIR;
  for (const char* folder : {"specs", "bench/variants", "tests/gpu/surface"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      if (entry.path().extension() == ".attn") paths.push_back(entry.path());
    }
  }
  return paths;
}

TEST(StaticChecks, SayNothingOfWhatShips) {
  const auto paths = shipped();
  ASSERT_GT(paths.size(), 90U);
  for (const auto& path : paths) {
    const support::Source source = support::Source::read(path.string()).value();
    for (const sema::Bindings& bindings :
         {sema::Bindings{}, sema::Bindings{{"B", "3"}}, sema::Bindings{{"B", "1"}}}) {
      diag::Sink sink(source);
      driver::front_end(source, bindings, sink);
      EXPECT_EQ(diag::to_text(sink), "") << path;
    }
  }
}

}  // namespace
}  // namespace attn::check
