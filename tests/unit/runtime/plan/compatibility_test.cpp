// The plan file that is kept (tests/compat): every later attnc reads it, and writes it the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/plan/container.h"
#include "tests/support/golden.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPath = "tests/compat/format_1.txt";
constexpr std::size_t kBlock = 64;  // bytes of the header, and of an entry of the section table

// All kinds of steps, a check, sizes, and what was decided.
Bundle kept() {
  Plan derived = testing::decided_plan();
  derived.program = testing::derived_program();
  derived.kernels = testing::derived_plan().kernels;
  return {{testing::signed_again(derived), testing::promoting_plan()}};
}

std::string hex_lines(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text += fmt::format("{:02x}{}", static_cast<unsigned char>(bytes[i]),
                        i % 32 == 31 || i + 1 == bytes.size() ? '\n' : ' ');
  }
  return text;
}

// In files of the first version with ranks only the plans still have a meaning.
TEST(Compatibility, RanksOfVersion10StillLoad) {
  const Result<Family> family = load_family(ATTN_SOURCE_DIR "/tests/compat/v10_ranks.plan");
  ASSERT_TRUE(family.ok()) << family.error().to_text();
  EXPECT_EQ(family->parts, testing::sample_pair());
  EXPECT_TRUE(family->ranks.starts_with(R"({"name":"causal_two")"));
  EXPECT_EQ(family->kernels, "");
}

}  // namespace
}  // namespace attn::plan
