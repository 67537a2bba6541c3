#include "tools/drawn.h"

#include <iterator>

namespace attn::tools {

Result<Drawn> draw_inputs(const ir::Attention& attention, Inputs inputs,
                          const PictureOf& picture_of) {
  auto& [tensors, params] = inputs.values;
  reference::Bindings values{
      {std::move_iterator(tensors.begin()), std::move_iterator(tensors.end())},
      {params.begin(), params.end()}};
  ATTN_ASSIGN(pictures::Picture picture, picture_of(attention, values));
  return Drawn{std::move(picture), std::move(values), std::move(inputs.origins)};
}

}  // namespace attn::tools
