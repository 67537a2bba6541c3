// Fuzzes plan files: any bytes give an error of the right kind or valid plans (plan_use.h).
#include "runtime/plan/storage.h"
#include "runtime/ranks/program_json.h"
#include "tests/fuzz/plan_use.h"
#include "tests/fuzz/target.h"
#include "tests/standin/plans.h"
#include "tests/unit/runtime/plan/sample_plans.h"
#include "tests/unit/runtime/ranks/sample_division.h"

namespace attn::fuzz {

std::vector<std::string> seeds() {
  plan::testing::Random random(31);
  std::vector<std::string> all = {
      plan::serialize(plan::testing::sample_plan()),
      plan::serialize(plan::testing::decided_plan()),
      plan::serialize(plan::testing::controlled_plan()),
      plan::serialize(plan::testing::sample_pair()),
      *plan::serialize_within_limits(plan::testing::sample_pair().plans,
                                     ranks::to_json(ranks::testing::sample_division()), "a cubin"),
      plan::serialize(standin::make_plan()),
      plan::serialize(standin::plan_of(plan::testing::kernel_program()))};
  for (int i = 0; i < 8; ++i) all.push_back(plan::serialize(plan::testing::random_plan(random)));
  return all;
}

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  attn::fuzz::use_plan_file(bytes);
  // Checksums are recomputed, since mutations rarely get past them.
  attn::fuzz::use_plan_file(attn::plan::testing::resealed(bytes));
  return 0;
}
