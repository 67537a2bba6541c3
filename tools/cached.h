// The folder of cached plans, for commands that compile what they run.
#pragma once

#include <string>

#include "compiler/driver/driver.h"
#include "tools/command.h"

namespace attn::tools {

// --use-cache
void add_cache_option(CLI::App& command, bool& use_cache);

// The cache of the usual folder, for the cuDNN that is found there; what is wrong with the folder
// is told on standard error. Errors: those of cudnn::Library::load.
Result<driver::CachedPlans> open_cache(const std::string& cudnn_folder);

}  // namespace attn::tools
