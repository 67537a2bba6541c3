#include "runtime/execute/executable_cache.h"

#include <utility>

#include "runtime/execute/executable_state.h"

namespace attn::execute {
namespace {

std::size_t bytes_of(const ExecutableState& state) {
  return state.plan_bytes + state.device_bytes();
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
  return get_or_load(cache::Key(plan.signature),
                     [&] { return Executable::load(runtime_, plan, options_); });
}

Result<Executable> ExecutableCache::get(const cache::Key& key, const Find& find) {
  return get_or_load(key, [&]() -> Result<Executable> {
    ATTN_ASSIGN(const std::shared_ptr<const plan::Plan> plan, find());
    return Executable::load(runtime_, *plan, options_);
  });
}

}  // namespace attn::execute
