#include "runtime/execute/executable_cache.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "runtime/execute/executable_state.h"

namespace attn::execute {
namespace {

std::size_t bytes_of(const ExecutableState& state) {
  return state.plan_bytes + state.device_bytes();
}

// A signature does not cover compiled code: two files may have the same signature but different
// kernels.
cache::Key key_of(const plan::Plan& plan) {
  plan::Signature extended{plan.signature.text, {}};
  for (const plan::CompiledStep& step : plan.compiled) {
    extended.text += fmt::format("\ncompiled {} workspace {}", hash128(step.cudnn_plan).to_hex(),
                                 step.workspace_bytes);
  }
  for (const std::string& image : plan.kernels) {
    extended.text += fmt::format("\nkernel {}", hash128(image).to_hex());
  }
  extended.hash = hash128(extended.text);
  return cache::Key(std::move(extended));
}

}  // namespace

ExecutableCache::ExecutableCache(std::shared_ptr<Runtime> runtime,
                                 const cache::MemoryOptions& limits, const LoadOptions& options)
    : runtime_(std::move(runtime)), options_(options), loaded_(limits, bytes_of, counters_) {}

Result<Executable> ExecutableCache::get_or_load(const cache::Key& key, const Load& load) {
  ATTN_ASSIGN(std::shared_ptr<const ExecutableState> state,
              loaded_.get(key, [&]() -> Result<std::shared_ptr<const ExecutableState>> {
                counters_.add(cache::Counter::load);
                ATTN_ASSIGN(Executable loaded, load());
                return loaded.state_;
              }));
  return Executable(std::move(state));
}

Result<Executable> ExecutableCache::get(const plan::Plan& plan) {
  return get_or_load(key_of(plan), [&] { return Executable::load(runtime_, plan, options_); });
}

Result<Executable> ExecutableCache::get(const cache::Key& key, const Find& find) {
  return get_or_load(key, [&]() -> Result<Executable> {
    ATTN_ASSIGN(const std::shared_ptr<const plan::Plan> plan, find());
    return Executable::load(runtime_, *plan, options_);
  });
}

}  // namespace attn::execute
