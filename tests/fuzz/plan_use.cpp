#include "tests/fuzz/plan_use.h"

#include <nlohmann/json.hpp>

#include "runtime/execute/device_tensors.h"
#include "runtime/plan/bundle.h"
#include "runtime/plan/storage.h"
#include "tests/fuzz/ranks_use.h"
#include "tests/fuzz/target.h"
#include "tests/standin/executing.h"
#include "tests/standin/standins.h"
#include "tests/unit/runtime/plan/program_text.h"
#include "tools/inspection.h"

namespace attn::fuzz {
namespace {

constexpr std::int64_t kDeviceBytes = 64 << 20;  // the stand-in's memory is host memory

bool is_plan_error(ErrorCode code) {
  return code == ErrorCode::plan_foreign || code == ErrorCode::plan_newer ||
         code == ErrorCode::plan_truncated || code == ErrorCode::plan_damaged;
}

std::shared_ptr<execute::Runtime> open_runtime() {
  Result<std::shared_ptr<execute::Runtime>> runtime = standin::open_runtime();
  require(runtime.ok());
  standin::cuda().set_memory(kDeviceBytes);
  return *std::move(runtime);
}

// The text has no control characters except line ends, whatever names the plan has.
void look_at(const plan::Bundle& bundle, const plan::Plan& plan) {
  require(!plan::to_text(plan.program).empty());
  require(!plan::manifest_json(plan).empty());
  const std::string shown = tools::inspect_text("file", bundle, plan);
  for (const char c : shown) require(c == '\n' || (c != '\x7f' && (c < 0 || c >= 0x20)));
}

// Its plans are shown, and refused as a bundle.
void look_at(const plan::Family& family) {
  require(nlohmann::ordered_json::accept(family.ranks));
  use_ranks(family.ranks);
  for (const plan::Plan& plan : family.parts.plans) look_at(family.parts, plan);
  const auto file = plan::serialize_within_limits(family.parts.plans, family.ranks, family.kernels);
  require(file.ok() && *plan::deserialize_family(*file) == family);
  const Result<plan::Bundle> bundle = plan::deserialize_bundle(*file);
  require(!bundle.ok() && bundle.error().code == ErrorCode::invalid_argument);
}

Status execute(const std::shared_ptr<execute::Runtime>& runtime, const plan::Plan& plan) {
  ATTN_ASSIGN(const auto executable, execute::Executable::load(runtime, plan));
  ATTN_ASSIGN(const auto tensors,
              execute::DeviceTensors::allocate(executable.device(), plan.program));
  execute::Arguments arguments = tensors.arguments();
  for (const plan::ParamInfo& param : plan.program.params) {
    arguments.scalar(param.name, param.dtype, 1);
  }
  ATTN_ASSIGN(auto binding, executable.bind(arguments));
  return binding.execute(nullptr);
}

}  // namespace

void use_plan_file(std::string_view bytes) {
  static const std::shared_ptr<execute::Runtime> runtime = open_runtime();
  const Result<plan::Family> family = plan::deserialize_family(bytes);
  if (!family.ok()) return require(is_plan_error(family.error().code));
  if (!family->ranks.empty()) return look_at(*family);
  const Result<plan::Bundle> bundle = plan::deserialize_bundle(bytes);
  require(bundle.ok());
  for (const plan::Plan& plan : bundle->plans) {
    require(plan::validate(plan.program).ok());
    require(plan.workspace_bytes() >= 0);
    look_at(*bundle, plan);
    const Status executed = execute(runtime, plan);
    require(executed.ok() || executed.error().code != ErrorCode::internal);
  }
  const Result<plan::Bundle> again = plan::deserialize_bundle(plan::serialize(*bundle));
  require(again.ok() && *again == *bundle);
  // Violations by kernels that run with sizes they were not made for are expected.
  standin::cuda().control.reset();
  standin::cudnn().control.reset();
  standin::cuda().set_memory(kDeviceBytes);
}

}  // namespace attn::fuzz
