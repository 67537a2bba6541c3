#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"

namespace attn::driver {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCausal = R"(attention causal {
  dims B = 1, Hq = 2, Hkv = 1, Sq, Skv = Sq, D = 64;
  mask q_idx >= kv_idx && (1 < 2);
  outputs o;
})";

std::optional<ir::Attention> read(const std::string& name, const std::string& text,
                                  const sema::Bindings& bindings, std::string& diagnostics) {
  const support::Source source(name, text);
  diag::Sink sink(source);
  std::optional<ir::Attention> attention = front_end(source, bindings, sink);
  EXPECT_EQ(attention.has_value(), !sink.has_errors());
  diagnostics = diag::to_text(sink);
  return attention;
}

TEST(FrontEnd, GivesVerifiedAndSimplifiedIr) {
  std::string diagnostics;
  const auto attention = read("causal.attn", kCausal, {{"Sq", "16"}}, diagnostics);
  ASSERT_TRUE(attention) << diagnostics;
  EXPECT_TRUE(ir::verify(*attention).ok());
  EXPECT_EQ(attention->dims[ir::Dim::Skv], 16);
  ASSERT_EQ(attention->masks.size(), 1U);  // the constant conjunct is gone
  EXPECT_EQ(ir::to_source(*attention, attention->masks[0]), "q_idx >= kv_idx");
}

TEST(FrontEnd, KeepsOpenDimensions) {
  std::string diagnostics;
  const auto attention = read("causal.attn", kCausal, {}, diagnostics);
  ASSERT_TRUE(attention) << diagnostics;
  EXPECT_FALSE(attention->dims.bound());
}

TEST(FrontEnd, StopsAtSyntaxErrors) {
  std::string diagnostics;
  EXPECT_FALSE(read("x.attn", "attention x { mask ; }", {}, diagnostics));
  EXPECT_THAT(diagnostics, HasSubstr("E0102"));
}

TEST(FrontEnd, StopsAtErrorsOfMeaning) {
  std::string diagnostics;
  EXPECT_FALSE(
      read("x.attn", "attention x { mask q_idx >= nothing; outputs o; }", {}, diagnostics));
  EXPECT_THAT(diagnostics, HasSubstr("E0201"));
}

TEST(FrontEnd, ReadsJsonByItsName) {
  std::string diagnostics;
  EXPECT_FALSE(read("x.attn.json", "{]", {}, diagnostics));
  EXPECT_THAT(diagnostics, HasSubstr("E0110"));
}

// Masks of a spec and of its standing_alone text, which imports nothing.
void expect_same_meaning(const std::string& text) {
  const std::string alone = standing_alone(support::Source("x.attn", text));
  EXPECT_FALSE(alone.starts_with("import"));
  std::string diagnostics;
  const auto first = read("x.attn", text, {}, diagnostics);
  ASSERT_TRUE(first) << diagnostics;
  const auto second = read("x.attn", alone, {}, diagnostics);
  ASSERT_TRUE(second) << alone << diagnostics;
  EXPECT_EQ(ir::to_text(*first), ir::to_text(*second));
  EXPECT_EQ(diagnostics, "") << alone;
}

TEST(StandingAlone, MeansWhatTheSpecMeans) {
  expect_same_meaning(R"(import "masks.attn"; attention f { mask causal(); })");
  expect_same_meaning(R"(import "masks.attn"; attention f(w = 3) { mask window(w); })");
}

TEST(StandingAlone, HasNoFunctionThatNothingCalls) {
  const std::string alone = standing_alone(
      support::Source("x.attn", R"(import "masks.attn"; attention f { tensor doc: i32[B, Skv];
        mask document_causal(doc); })"));
  for (const char* name : {"causal", "document", "document_causal"}) {
    EXPECT_THAT(alone, HasSubstr(std::string("fn ") + name + "("));
  }
  EXPECT_EQ(alone.find("fn window("), std::string::npos) << alone;
  EXPECT_FALSE(alone.starts_with("\n")) << alone;
}

TEST(StandingAlone, ValuesMayHaveNamesOfImportedFunctions) {
  expect_same_meaning(R"(import "masks.attn"; attention f(window = 3) { mask window(window); })");
  expect_same_meaning(R"(import "masks.attn"; attention f { tensor document: i32[B, Skv];
    mask document(document); let causal = 4; mask kv_idx < causal && prefix(causal); })");
}

TEST(StandingAlone, OwnFunctionsHideImportedOnesFromTheSpecAlone) {
  // document_causal calls the causal of its library.
  expect_same_meaning(R"(import "masks.attn"; fn causal() = q_idx > kv_idx;
    attention f { tensor doc: i32[B, Skv]; mask causal(); mask document_causal(doc); })");
  expect_same_meaning(R"(import "masks.attn"; attention f { tensor doc: i32[B, Skv];
    fn causal() = doc[b, q_idx] > kv_idx; mask causal() && document_causal(doc); })");
}

TEST(Lower, NamesTheOpenDimensionAndTheBindingThatClosesIt) {
  std::string diagnostics;
  const auto attention = read("causal.attn", kCausal, {}, diagnostics);
  ASSERT_TRUE(attention) << diagnostics;
  const auto program = lower(*attention, "cudnn");
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(program.error().message, HasSubstr("Sq"));
  EXPECT_THAT(program.error().to_text(), HasSubstr("--bind Sq="));
}

// What its sizes cost together is no reason to refuse a spec, each of whose plans compiles.
TEST(CheckAllSizes, EndsAndSaysSo) {
  std::string sizes = "16";
  for (int i = 17; i < 16 + 128; ++i) sizes += ", " + std::to_string(i);
  std::string term = "j";
  for (int i = 0; i < 16; ++i) term += " * 0";
  const std::string text = "attention x { dims B = 1, Hq = 1, Sq = {" + sizes +
                           "}, D = 8; mask q_idx >= sum(j in 0..1000: " + term + "); }";
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  const CheckedSizes checked = check_all_sizes(source, {}, sink);
  EXPECT_TRUE(checked.first) << diag::to_text(sink);
  EXPECT_EQ(checked.plans, 128U);
  EXPECT_GT(checked.looked_at, 4U);
  EXPECT_LT(checked.looked_at, 128U);
  EXPECT_TRUE(sink.is_stopped());
}

// An import counts once, however many sizes there are.
TEST(CheckAllSizes, ReadsImportsOnce) {
  const std::string text =
      "import \"masks.attn\"; attention x { dims B = {1, 2, 3}, Hq = 1, Sq = {16, 32}, D = 8; "
      "mask causal(); mask q_idx * 200000000 >= 0; }";
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  const CheckedSizes checked = check_all_sizes(source, {}, sink);
  EXPECT_EQ(checked.looked_at, 6U);
  const std::size_t once =
      source.text().size() + support::text_of(sema::standard_library(), "masks.attn").size() + 1;
  EXPECT_EQ(sink.size(), once);
  const auto found = sink.sorted();
  ASSERT_EQ(found.size(), 1U) << diag::to_text(sink);
  EXPECT_THAT(found[0].message, HasSubstr("(with B=1 Sq=16; similar with 5 other sizes)"));
}

TEST(CheckAllSizes, SaysWithWhichSizesAnErrorComes) {
  const support::Source source(
      "x.attn",
      "attention x { dims B = 1, Hq = 1, Sq = {16, 32}, D = 8; tensor t: f32[16]; "
      "score score + t[kv_idx]; }");
  diag::Sink sink(source);
  const CheckedSizes checked = check_all_sizes(source, {}, sink);
  EXPECT_FALSE(checked.first);
  EXPECT_THAT(diag::to_text(sink), HasSubstr("along this axis (with Sq=32)"));
}

}  // namespace
}  // namespace attn::driver
