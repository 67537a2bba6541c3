#include "compiler/codegen/row_tile.h"

#include <fmt/format.h>

namespace attn::codegen {

std::string RowTile::row_text(const std::string& local) const {
  return fmt::format("{0} / {1} * {2} + first[0] + {0} % {1}", local, rows, group_rows);
}

}  // namespace attn::codegen
