// Drawings as PNG.
#pragma once

#include <string>

#include "compiler/pictures/drawing.h"
#include "runtime/base/status.h"

namespace attn::pictures {

inline constexpr double kMostPixelsAlong = 1e6;  // libpng's limit
inline constexpr double kMostPixels = 0x1p27;    // of 3 bytes, held in memory

// The bytes of a file, at two pixels for each of the drawing. Errors: invalid_argument, if there
// would be more pixels than that; internal, with libpng's text.
Result<std::string> to_png(const Drawing& drawing, Theme theme);

}  // namespace attn::pictures
