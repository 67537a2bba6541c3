#include "tests/golden/lowering/specs.h"

#include <gtest/gtest.h>

#include <algorithm>

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

plan::Program lowered_spec(const std::filesystem::path& path) {
  const auto source = support::Source::read(path.string());
  if (!source.ok()) {
    ADD_FAILURE() << source.error().to_text();
    return {};
  }
  diag::Sink sink(*source);
  const auto attention = driver::front_end(*source, {}, sink);
  if (!attention) {
    ADD_FAILURE() << diag::to_text(sink);
    return {};
  }
  auto program = driver::lower(*attention);
  if (!program.ok()) {
    ADD_FAILURE() << path << ": " << program.error().to_text();
    return {};
  }
  return std::move(program).value();
}

}  // namespace attn::testing
