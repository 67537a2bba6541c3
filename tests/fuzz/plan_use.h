// Exercises everything that can be done with an untrusted plan file without a GPU.
#pragma once

#include <string_view>

namespace attn::fuzz {

// Reads the file. If that works, validates, lists and serializes the plans, shows them as `attnc
// inspect` does, and loads, binds and executes them on the stand-ins for cuDNN and the driver. Each
// step must succeed or return a typed error, whatever the bytes are; a violated property ends the
// process.
void use_plan_file(std::string_view bytes);

}  // namespace attn::fuzz
