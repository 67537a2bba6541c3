// What the fuzzers do with what ranks do, as JSON.
#pragma once

#include <string_view>

namespace attn::fuzz {

// It is an error of the right kind, or a division that is written as it was read.
void use_ranks(std::string_view json);

}  // namespace attn::fuzz
