// The plan cache, for commands that compile.
#pragma once

#include <string>

#include "compiler/driver/driver.h"
#include "tools/command.h"

namespace attn::tools {

// --use-cache
void add_cache_option(CLI::App& command, bool& use_cache);

// Opens the cache in the default folder, for the cuDNN in `cudnn_folder`. Problems with the cache
// folder are warnings on standard error. Errors: those of cudnn::Library::load.
Result<driver::CachedPlans> open_cache(const std::string& cudnn_folder);

}  // namespace attn::tools
