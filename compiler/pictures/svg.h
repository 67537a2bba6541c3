// Drawings as SVG.
#pragma once

#include <optional>
#include <string>

#include "compiler/pictures/drawing.h"

namespace attn::pictures {

// Without a theme, the colours follow the reader's choice of light or dark.
std::string to_svg(const Drawing& drawing, std::optional<Theme> theme);

}  // namespace attn::pictures
