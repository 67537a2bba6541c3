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
  derived.nvrtc_version = testing::derived_plan().nvrtc_version;
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

// The bytes of a plan file, in hexadecimal; manifests as indented JSON.
std::string text_of(std::string_view bytes) {
  const std::vector<Section> sections = read_container(bytes).value();
  std::string text = "# header\n" + hex_lines(bytes.substr(0, kBlock)) + "# section table\n" +
                     hex_lines(bytes.substr(kBlock, kBlock * sections.size()));
  for (const Section& section : sections) {
    text += fmt::format("# section of kind {}\n", section.kind);
    text += section.kind == kManifestSection ? Json::parse(section.stored).dump(1) + "\n"
                                             : hex_lines(section.stored);
  }
  return text;
}

std::string bytes_of_hex(const std::string& text) {
  std::istringstream words(text);
  std::string bytes;
  for (std::string word; words >> word;) bytes += static_cast<char>(std::stoi(word, nullptr, 16));
  return bytes;
}

// The reverse of text_of.
std::string bytes_of(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find('\n', at) + 1;  // after the heading
    at = std::min(text.find("\n# ", begin), text.size() - 1) + 1;
    const std::string part = text.substr(begin, at - begin);
    bytes += part.starts_with('{') ? Json::parse(part).dump() : bytes_of_hex(part);
  }
  return bytes;
}

std::string kept_bytes() { return bytes_of(attn::testing::read_source_file(kPath)); }

TEST(Compatibility, TheKeptFileIsReadWhole) {
  if (std::getenv("ATTN_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(std::string(ATTN_SOURCE_DIR "/") + kPath) << text_of(serialize(kept()));
  }
  const Result<Bundle> bundle = deserialize_bundle(kept_bytes());
  ASSERT_TRUE(bundle.ok()) << bundle.error().to_text();
  EXPECT_EQ(*bundle, kept());
}

// Packed bytes may differ between releases of zstd.
TEST(Compatibility, TheKeptFileIsWrittenTheSame) {
  const std::string then = kept_bytes(), now = serialize(kept());
  EXPECT_EQ(then.substr(0, 16), now.substr(0, 16)) << "magic, version and number of sections";
  const auto old_sections = read_container(then), sections = read_container(now);
  ASSERT_TRUE(old_sections.ok()) << old_sections.error().to_text();
  ASSERT_EQ(old_sections->size(), sections->size());
  for (std::size_t i = 0; i < sections->size(); ++i) {
    const Section &old = (*old_sections)[i], &section = (*sections)[i];
    EXPECT_EQ(old.kind, section.kind) << i;
    EXPECT_EQ(old.packed, section.packed) << i;
    EXPECT_EQ(unpack(old, kMaxPlanBytes).value(), unpack(section, kMaxPlanBytes).value()) << i;
  }
}

}  // namespace
}  // namespace attn::plan
