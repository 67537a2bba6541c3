// Plan files: whatever the bytes, deserialize gives a typed error or plans that are whole.
#include "tests/fuzz/target.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::fuzz {
namespace {

bool is_plan_error(ErrorCode code) {
  return code == ErrorCode::plan_foreign || code == ErrorCode::plan_newer ||
         code == ErrorCode::plan_truncated || code == ErrorCode::plan_damaged;
}

void try_plan(std::string_view bytes) {
  const Result<plan::Bundle> bundle = plan::deserialize_bundle(bytes);
  if (!bundle.ok()) return require(is_plan_error(bundle.error().code));
  for (const plan::Plan& plan : bundle->plans) require(plan::validate(plan.program).ok());
  const Result<plan::Bundle> again = plan::deserialize_bundle(plan::serialize(*bundle));
  require(again.ok() && *again == *bundle);
}

}  // namespace

std::vector<std::string> seeds() {
  plan::testing::Random random(31);
  std::vector<std::string> all = {plan::serialize(plan::testing::sample_plan()),
                                  plan::serialize(plan::testing::sample_pair())};
  for (int i = 0; i < 8; ++i) all.push_back(plan::serialize(plan::testing::random_plan(random)));
  return all;
}

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  attn::fuzz::try_plan(bytes);
  // With checksums that fit, or nothing would ever get past them.
  attn::fuzz::try_plan(attn::plan::testing::resealed(bytes));
  return 0;
}
