#include "tools/cached.h"

#include <fmt/format.h>

#include "runtime/cache/folder.h"
#include "runtime/cache/plan_cache.h"
#include "runtime/cudnn/library.h"
#include "tools/console.h"

namespace attn::tools {

void add_cache_option(CLI::App& command, bool& use_cache) {
  command.add_flag("--use-cache", use_cache,
                   "Read plans from the cache (`attnc cache`) and store new ones in it");
}

driver::CachedPlans open_cache(const std::string& cudnn_folder) {
  cache::PlanCacheOptions options;
  options.folder = cache::default_folder();
  options.warn = [](const Error& error) {
    tell_warning(fmt::format("plans are not cached: {}", error.message));
  };
  const auto version = [cudnn_folder]() -> Result<std::int64_t> {
    ATTN_ASSIGN(const auto library, cudnn::Library::load(cudnn_folder));
    return library->version();
  };
  return {std::make_shared<cache::PlanCache>(std::move(options)), version};
}

}  // namespace attn::tools
