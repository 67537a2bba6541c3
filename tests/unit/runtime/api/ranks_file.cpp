#include "tests/unit/runtime/api/ranks_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/runtime/ranks/window_family.h"

namespace attn::standin {

std::string contents_of_ranks() {
  const std::string path = ::testing::TempDir() + "ranks_" + std::to_string(getpid());
  EXPECT_TRUE(plan::save(ranks::testing::window_family(), path).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string contents(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove(path);
  return contents;
}

}  // namespace attn::standin
