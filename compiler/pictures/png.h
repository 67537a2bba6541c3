// Drawings as PNG.
#pragma once

#include <string>

#include "compiler/pictures/drawing.h"
#include "runtime/base/status.h"

namespace attn::pictures {

// The bytes of a file, at two pixels for each of the drawing. Errors: internal, with libpng's text.
Result<std::string> to_png(const Drawing& drawing, Theme theme);

}  // namespace attn::pictures
