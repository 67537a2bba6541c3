#include "tools/cached.h"

#include <fmt/format.h>

#include "runtime/cache/folder.h"
#include "runtime/cache/plan_cache.h"
#include "runtime/cudnn/library.h"

namespace attn::tools {

void add_cache_option(CLI::App& command, bool& use_cache) {
  command.add_flag("--use-cache", use_cache,
                   "Read plans from the cache (`attnc cache`) and store new ones in it");
}

Result<driver::CachedPlans> open_cache(const std::string& cudnn_folder) {
  ATTN_ASSIGN(const auto library, cudnn::Library::load(cudnn_folder));
  cache::PlanCacheOptions options;
  options.folder = cache::default_folder();
  options.warn = [](const Error& error) {
    fmt::print(stderr, "warning: plans are not cached: {}\n", error.message);
  };
  return driver::CachedPlans{std::make_shared<cache::PlanCache>(std::move(options)),
                             library->version()};
}

}  // namespace attn::tools
