#include "tools/cached.h"

#include <fmt/format.h>

#include "runtime/cache/folder.h"
#include "runtime/cache/plan_cache.h"
#include "runtime/cudnn/library.h"

namespace attn::tools {

void add_no_cache(CLI::App& command, bool& no_cache) {
  command.add_flag("--no-cache", no_cache,
                   "Compile anew, and keep nothing (`attnc cache` shows what is kept)");
}

Result<driver::CachedPlans> open_cache(const std::string& cudnn_folder) {
  ATTN_ASSIGN(const auto library, cudnn::Library::load(cudnn_folder));
  cache::PlanCacheOptions options;
  options.folder = cache::default_folder();
  options.warn = [](const Error& error) {
    fmt::print(stderr, "warning: plans are not kept: {}\n", error.message);
  };
  return driver::CachedPlans{std::make_shared<cache::PlanCache>(std::move(options)),
                             library->version()};
}

}  // namespace attn::tools
