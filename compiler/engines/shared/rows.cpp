#include "compiler/engines/shared/rows.h"

#include <fmt/format.h>

#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/lengths.h"

namespace attn::engines {

using codegen::Field;
using ir::Dim;

std::int64_t lanes_of(std::int64_t columns) { return columns >= 32 ? 32 : 8; }

std::vector<Field> row_fields(const ir::Attention& attention, std::int64_t lanes,
                              codegen::KernelText& kernel,
                              const std::optional<codegen::RowTile>& tile) {
  const ir::Dims& d = attention.dims;
  const std::int64_t rows = tile ? tile->all_rows() : d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
  std::vector<Field> fields = {{"rows", rows},
                               {"lanes", lanes},
                               {"Sq", d[Dim::Sq]},
                               {"Hq", d[Dim::Hq]},
                               {"Skv", d[Dim::Skv]}};
  const auto read = [&](const char* field, const std::string& tensor, bool wanted) {
    if (wanted) fields.emplace_back(field, kernel.read(tensor, DType::i32));
  };
  read("lengths_q", std::string(ir::kLengthsQ), has_row_lengths(attention));
  read("lengths_kv", std::string(ir::kLengthsKv), has_column_lengths(attention));
  read("row_starts", kRowStarts,
       !attention.is_sigmoid() && !addressed_by(attention, "lse").empty());
  if (!tile) return fields;
  fields.emplace_back("first", kernel.read(tile->first, DType::i64));
  fields.emplace_back("tile_rows", tile->rows);
  fields.emplace_back("group_rows", tile->group_rows);
  return fields;
}

std::vector<Field> kept_fields(const ir::Attention& attention, const std::string& kept,
                               codegen::KernelText& kernel) {
  if (kept.empty()) return {};
  return {{"kept", kernel.read(kept, DType::i32)},
          {"keep_scale", fmt::format("{}", 1 / (1 - attention.dropout->probability))}};
}

}  // namespace attn::engines
