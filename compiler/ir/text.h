// Text helpers shared by the IR printers.
#pragma once

#include <string>

namespace attn::ir {

// The shortest text that reads back as the same real, with a point or exponent so that it never
// reads as an integer: "50.0", "1e-09", "-inf", "nan".
std::string real_text(double value);

}  // namespace attn::ir
