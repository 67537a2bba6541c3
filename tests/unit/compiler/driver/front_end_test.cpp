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

TEST(Lower, NamesTheOpenDimensionAndTheBindingThatClosesIt) {
  std::string diagnostics;
  const auto attention = read("causal.attn", kCausal, {}, diagnostics);
  ASSERT_TRUE(attention) << diagnostics;
  const auto program = lower(*attention);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(program.error().message, HasSubstr("Sq"));
  EXPECT_THAT(program.error().to_text(), HasSubstr("--bind Sq="));
}

}  // namespace
}  // namespace attn::driver
