// A plan file of two ranks for tests of the API, which see no internal headers.
#pragma once

#include <string>

namespace attn::standin {

// tests/unit/runtime/ranks/window_family.h
std::string contents_of_ranks();

}  // namespace attn::standin
