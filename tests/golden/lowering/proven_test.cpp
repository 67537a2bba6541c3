// Lowering only emits combinations of operations and operands that were compared with the reference
// on a GPU (tests/gpu/proven.txt).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "compiler/planner/search.h"
#include "tests/golden/lowering/specs.h"
#include "tests/support/combinations.h"
#include "tests/support/golden.h"

namespace attn::testing {
namespace {

std::set<std::string> proven() {
  std::istringstream table(read_source_file("tests/gpu/proven.txt"));
  std::set<std::string> right;
  for (std::string line; std::getline(table, line);) {
    if (!line.starts_with("right")) continue;
    const std::size_t begin = line.find(" | ") + 3;
    right.insert(line.substr(begin, line.find(" | ", begin) - begin));
  }
  return right;
}

class Proven : public ::testing::TestWithParam<const char*> {};

// Checks the graphs of a folder's specs. Returns their number.
std::size_t check(const std::string& folder, plan::Direction direction) {
  const std::set<std::string> right = proven();
  EXPECT_GT(right.size(), 100U);
  std::size_t graphs = 0;
  for (const auto& path : spec_files(folder)) {
    const auto program = try_lower(path, "cudnn", direction);
    if (!program.ok()) continue;  // dimensions are not bound, or it is refused
    for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(*program)) {
      ++graphs;
      for (const std::string& combination : combinations(step->graph)) {
        EXPECT_TRUE(right.contains(combination)) << path << "\n" << combination;
      }
    }
  }
  return graphs;
}

TEST_P(Proven, EveryCombinationOfASpecsGraph) {
  EXPECT_GT(check(GetParam(), plan::Direction::forward), 10U);
}

TEST_P(Proven, EveryCombinationOfItsBackward) {
  EXPECT_GT(check(GetParam(), plan::Direction::backward), 10U);
}

INSTANTIATE_TEST_SUITE_P(Specs, Proven,
                         ::testing::Values("specs", "tests/gpu/forms", "tests/gpu/surface",
                                           "tests/gpu/derived"),
                         [](const auto& folder) {
                           const std::string path = folder.param;
                           return path.substr(path.rfind('/') + 1);
                         });

}  // namespace
}  // namespace attn::testing
