#include "runtime/cache/plan_cache.h"

#include <algorithm>

#include "runtime/cudnn/known_bad.h"

namespace attn::cache {
namespace {

std::size_t bytes_of(const plan::Plan& plan) {
  std::size_t bytes = sizeof(plan) + plan.spec_text.size() + plan.target.device_json.size();
  bytes += 2 * plan.signature.text.size();  // the program is about as large
  for (const plan::CompiledStep& step : plan.compiled) bytes += step.cudnn_plan.size();
  for (const std::string& kernel : plan.kernels) bytes += kernel.size();
  return bytes;
}

// Whether the code means a damaged file. Files of a newer attnc are not damaged.
bool is_damage(ErrorCode code) {
  return code == ErrorCode::plan_truncated || code == ErrorCode::plan_damaged ||
         code == ErrorCode::plan_foreign;
}

Error another_signature() {
  return {ErrorCode::plan_version,
          "the plan that was built has another signature than the requested one",
          {"cuDNN may have been replaced in the meantime; try again"}};
}

}  // namespace

bool is_known_bad(const plan::Plan& plan) {
  auto compiled = plan.compiled.begin();
  return std::ranges::any_of(
      plan::steps_of<plan::CudnnStep>(plan.program), [&](const plan::CudnnStep* step) {
        const cudnn::Circumstances circumstances{plan.cudnn_version, plan.target.sm,
                                                 cudnn::features_of(step->graph)};
        return cudnn::find_known_bad(circumstances) != nullptr ||
               cudnn::find_known_bad(circumstances, (compiled++)->engine) != nullptr;
      });
}

PlanCache::PlanCache(PlanCacheOptions options)
    : memory_(options.memory, &bytes_of, counters_), warn_(std::move(options.warn)) {
  if (!options.folder.empty()) files_.emplace(std::move(options.folder), options.files);
}

Result<PlanCache::Pointer> PlanCache::get(const Key& key, const Build& build) {
  return memory_.get(key, [&] { return make(key, build); });
}

Result<PlanCache::Pointer> PlanCache::make(const Key& key, const Build& build) {
  if (std::optional<plan::Plan> plan = load(key)) {
    counters_.add(Counter::load);
    return std::make_shared<const plan::Plan>(std::move(*plan));
  }
  counters_.add(Counter::build);
  ATTN_ASSIGN(plan::Plan plan, build());
  if (plan.signature.text != key.text()) return another_signature();
  if (files_) {
    if (const Status saved = files_->save(plan); !saved.ok()) warn(saved.error());
  }
  return std::make_shared<const plan::Plan>(std::move(plan));
}

std::optional<plan::Plan> PlanCache::load(const Key& key) {
  if (!files_) return std::nullopt;
  Result<std::optional<plan::Plan>> plan = files_->load(key);
  if (!plan.ok()) {
    if (is_damage(plan.error().code)) {
      counters_.add(Counter::damaged);
      files_->remove(key.hash());
    } else {
      warn(plan.error());
    }
    return std::nullopt;
  }
  if (*plan && is_known_bad(**plan)) {
    counters_.add(Counter::outdated);
    files_->remove(key.hash());
    return std::nullopt;
  }
  return std::move(*plan);
}

void PlanCache::warn(const Error& error) {
  if (warn_ && !warned_.exchange(true)) warn_(error);
}

}  // namespace attn::cache
