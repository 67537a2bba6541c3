// Diagnostics of wrong specs: cases/NAME.attn -> NAME.expected, and as JSON cases/NAME.attn.json ->
// NAME.json.expected. ATTN_UPDATE_GOLDEN=1 rewrites the expectations instead. Comment lines in a
// case:
// `# bind: NAME=VALUE` is a --bind, `# pad: N` pads the text with spaces to N bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/driver/driver.h"
#include "compiler/driver/memory.h"
#include "compiler/rewrite/simplify.h"

namespace attn {
namespace {

namespace fs = std::filesystem;

const fs::path kCases = fs::path(ATTN_SOURCE_DIR) / "tests/golden/diagnostics/cases";

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> cases() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kCases)) {
    if (entry.is_regular_file() && entry.path().extension() != ".expected")
      found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

fs::path expectation(const fs::path& path) {
  std::string name = path.filename().string();
  name.replace(name.find(".attn"), 5, "");
  return kCases / (name + ".expected");
}

struct Case {
  sema::Bindings bindings;
  std::string text;
};

Case load(const fs::path& path) {
  Case result{{}, read(path)};
  std::istringstream lines(result.text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# bind: ")) {
      const std::size_t equals = line.find('=');
      result.bindings[line.substr(8, equals - 8)] = line.substr(equals + 1);
    } else if (line.starts_with("# pad: ")) {
      result.text.resize(std::stoul(line.substr(7)), ' ');
    }
  }
  return result;
}

std::string diagnose(const fs::path& path) {
  const Case wrong = load(path);
  fs::current_path(kCases);  // base of relative imports
  const support::Source source(path.filename().string(), wrong.text);
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, wrong.bindings, sink);
  EXPECT_EQ(attention.has_value(), !sink.has_errors());
  if (attention) driver::warn_of_memory(rewrite::simplify(*attention), sink);
  return diag::to_text(sink);
}

class Diagnostics : public ::testing::TestWithParam<fs::path> {};

TEST_P(Diagnostics, AreAsExpected) {
  const std::string actual = diagnose(GetParam());
  EXPECT_NE(actual, "") << "there are no diagnostics";
  const fs::path expected = expectation(GetParam());
  if (std::getenv("ATTN_UPDATE_GOLDEN")) {
    std::ofstream(expected, std::ios::binary) << actual;
    return;
  }
  EXPECT_EQ(actual, read(expected))
      << "if the change is intended, run again with ATTN_UPDATE_GOLDEN=1";
}

std::string test_name(const ::testing::TestParamInfo<fs::path>& info) {
  std::string name = info.param.filename().string();
  std::ranges::replace(name, '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Diagnostics, ::testing::ValuesIn(cases()), test_name);

TEST(DiagnosticsTable, EveryCodeOccursInAGoldenFile) {
  if (std::getenv("ATTN_UPDATE_GOLDEN")) return;  // the files may be incomplete
  std::string all;
  for (const fs::path& path : cases()) all += read(expectation(path));
  for (const diag::Code code : diag::all_codes()) {
    EXPECT_NE(all.find(fmt::format("[{}]", diag::id_of(code))), std::string::npos)
        << diag::id_of(code) << ": " << diag::summary_of(code);
  }
}

TEST(DiagnosticsTable, TheSameMistakeHasTheSameCodesInJson) {
  const auto codes = [](const std::string& text) {
    std::vector<std::string> found;
    for (std::size_t at = text.find("[E"); at != text.npos; at = text.find("[E", at + 1)) {
      found.push_back(text.substr(at, 7));
    }
    std::ranges::sort(found);
    return found;
  };
  int pairs = 0;
  for (const fs::path& path : cases()) {
    const fs::path json = path.string() + ".json";
    if (!fs::exists(json)) continue;
    ++pairs;
    EXPECT_EQ(codes(diagnose(path)), codes(diagnose(json))) << path;
  }
  EXPECT_GE(pairs, 12);
}

}  // namespace
}  // namespace attn
