// What is measured before a plan is chosen, for commands that compile.
#pragma once

#include <string>

#include "compiler/driver/driver.h"
#include "tools/command.h"

namespace attn::tools {

struct Tuning {
  bool all = false;    // --autotune
  bool never = false;  // --no-autotune
};
void add_autotune(CLI::App& command, Tuning& tuning);

// Sets what is measured on the local GPU, if that is the target: without an option, what is near.
// Near programs that cannot be measured are a note on standard error.
void set_autotune(driver::CompileOptions& how, const Tuning& tuning, bool is_local,
                  const std::string& cudnn_folder);

}  // namespace attn::tools
