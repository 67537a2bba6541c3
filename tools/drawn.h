// A picture, and the inputs that it is of.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/pictures/picture.h"
#include "compiler/reference/bindings.h"
#include "tools/inputs.h"

namespace attn::tools {

struct Drawn {
  ir::Attention attention;  // as it is drawn: lists of keys are a mask, whose tensor `values` has
  pictures::Picture picture;
  reference::Bindings values;
  std::vector<std::pair<std::string, std::string>> origins;  // Inputs::origins
};

// The attention for a picture of these needs alone, without kernels and ranks. Head dimensions
// without a size get one, unless it would matter: what is drawn, or the shape or default of a
// tensor, reads them.
ir::Attention for_picture(const ir::Attention& attention, Needs needs);

// Draws with `picture_of`. Errors: those of picture_of.
using PictureOf = std::function<Result<pictures::Picture>(const ir::Attention& attention,
                                                          const reference::Bindings& values)>;
Result<Drawn> draw_inputs(const ir::Attention& attention, Inputs inputs,
                          const PictureOf& picture_of);

}  // namespace attn::tools
