#include "tests/golden/lowering/specs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "compiler/driver/driver.h"

namespace attn::testing {

std::vector<std::filesystem::path> spec_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / folder)) {
    if (entry.path().extension() == ".attn") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::set<std::string> not_lowered() {
  std::ifstream file(std::string(ATTN_SOURCE_DIR) + "/tests/conformance/not_lowered.txt");
  EXPECT_TRUE(file.is_open());
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, stage;
    if (!(words >> name >> stage) || !stage.starts_with("lowering")) continue;
    if (stage == "lowering" || stage.find("h200") != std::string::npos) names.insert(name);
  }
  return names;
}

Result<plan::Program> try_lower(const std::filesystem::path& path, std::string_view lowering,
                                plan::Direction direction) {
  const auto source = support::Source::read(path.string());
  if (!source.ok()) return source.error();
  diag::Sink sink(*source);
  const auto attention = driver::front_end(*source, {}, sink);
  if (!attention) return {ErrorCode::invalid_spec, diag::to_text(sink)};
  return driver::lower(*attention, lowering, direction);
}

plan::Program lowered_spec(const std::filesystem::path& path) {
  auto program = try_lower(path);
  if (!program.ok()) {
    ADD_FAILURE() << path << ": " << program.error().to_text();
    return {};
  }
  return std::move(program).value();
}

}  // namespace attn::testing
