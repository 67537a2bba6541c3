// What is done with a plan file of unknown origin wherever there is no GPU.
#pragma once

#include <string_view>

namespace attn::fuzz {

// Reads the file, and what can be read is checked, listed, written again, shown as `attnc inspect`
// shows it, loaded onto the stand-ins for cuDNN and the driver, bound and executed. Whatever the
// bytes are, each step ends with a typed error or goes on; a property that does not hold ends the
// process.
void use_plan_file(std::string_view bytes);

}  // namespace attn::fuzz
