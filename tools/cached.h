// The plan cache, for commands that compile.
#pragma once

#include <string>

#include "compiler/driver/driver.h"
#include "tools/command.h"

namespace attn::tools {

// --use-cache
void add_cache_option(CLI::App& command, bool& use_cache);

// Opens the cache in the default folder, for the cuDNN in `cudnn_folder`, which is loaded for the
// first plan that has steps of its. Problems with the cache folder are warnings on standard error.
driver::CachedPlans open_cache(const std::string& cudnn_folder);

}  // namespace attn::tools
