// Fuzzes plan files with valid checksums and mutated manifests (manifest_mutator.h): reads, shows,
// loads and executes them (plan_use.h).
#include "tests/fuzz/manifest_mutator.h"
#include "tests/fuzz/plan_use.h"
#include "tests/fuzz/target.h"
#include "tests/standin/plans.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::fuzz {
namespace {

std::vector<plan::Bundle> make_bundles() {
  std::vector<plan::Bundle> bundles = {{{plan::testing::sample_plan()}},
                                       {{plan::testing::decided_plan()}},
                                       {{plan::testing::derived_plan()}},
                                       {{plan::testing::controlled_plan()}},
                                       {{plan::testing::backward_plan()}},
                                       plan::testing::sample_pair(),
                                       {{standin::plan_of(plan::testing::kernel_program())}}};
  for (int i = 0; i < 16; ++i) {
    standin::PlanOptions options;
    options.number = i;
    options.steps = 1 + i % 3;
    options.params = i % 2;
    options.derives_once = (i & 2) != 0;
    options.derives_each = (i & 4) != 0;
    options.checks = (i & 8) != 0;
    bundles.push_back({{standin::make_plan(options)}});
  }
  return bundles;
}

}  // namespace

// Random decisions, which the driver mutates further.
std::vector<std::string> seeds() {
  plan::testing::Random random(33);
  std::vector<std::string> all;
  for (int i = 0; i < 500; ++i) {
    std::string& bytes = all.emplace_back();
    for (std::size_t left = 8 + random.below(64); left > 0; --left) {
      bytes += static_cast<char>(random.bits());
    }
  }
  return all;
}

const std::vector<std::string>& words() {
  static const std::vector<std::string> all = {std::string(4, '\0'), std::string(4, '\xff'), "\x0c",
                                               "\x0f", "abcdefgh"};
  return all;
}

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attn::fuzz;
  static const std::vector<attn::plan::Bundle> bundles = make_bundles();
  Decisions decisions({data, size});
  const std::string file =
      file_with_changed_manifest(bundles[decisions.index(bundles.size())], decisions);
  input_is_made();
  use_plan_file(file);
  return 0;
}
