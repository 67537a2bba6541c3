#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace attn::testing {
namespace {

std::filesystem::path source_path(const std::string& path) {
  return std::filesystem::path(ATTN_SOURCE_DIR) / path;
}

bool updating() {
  const char* update = std::getenv("ATTN_UPDATE_GOLDEN");
  return update != nullptr && std::string(update) == "1";
}

// The text without the hashes of kernel files, which change with these files.
std::string without_hashes(const std::string& text) {
  static const std::regex hash("(#include \"attn/[a-z_]*\\.cuh\")  // [0-9a-f]{16}");
  return std::regex_replace(text, hash, "$1");
}

}  // namespace

std::string read_source_file(const std::string& path) {
  std::ifstream file(source_path(path), std::ios::binary);
  if (!file) {
    ADD_FAILURE() << "cannot read " << path;
    return "";
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void expect_golden(const std::string& path, const std::string& text) {
  const std::string actual = without_hashes(text);
  if (updating()) {
    std::filesystem::create_directories(source_path(path).parent_path());
    std::ofstream(source_path(path), std::ios::binary) << actual;
    return;
  }
  EXPECT_EQ(actual, read_source_file(path)) << path << " differs; ATTN_UPDATE_GOLDEN=1 rewrites it";
}

void expect_table(const std::string& path, const std::string& name, const std::string& table) {
  const std::string begin = "<!-- " + name + ": begin (generated) -->\n";
  std::string page = read_source_file(path);
  const std::size_t from = page.find(begin);
  const std::size_t to = page.find("<!-- " + name + ": end -->\n");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  page.replace(from + begin.size(), to - from - begin.size(), table);
  expect_golden(path, page);
}

}  // namespace attn::testing
