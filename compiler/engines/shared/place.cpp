#include "compiler/engines/shared/place.h"

#include <fmt/format.h>

#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"

namespace attn::engines {
namespace {

// C expressions of b, h, s and d.
struct Located {
  std::string batch_and_row;
  std::string present;
};

Located place_of(const ir::Attention& attention, const std::string& name,
                 codegen::KernelText& kernel) {
  const ir::Layout& layout = layout_of(attention, name);
  const Dims4 strides = stored_strides(attention, name);
  switch (layout.kind) {
    case ir::LayoutKind::thd: {
      const std::string starts = kernel.read(addressed_by(attention, name), DType::i32);
      return {fmt::format("({}[b] + s) * {}LL", starts, strides[2]),
              fmt::format("s < {0}[b + 1] - {0}[b]", starts)};
    }
    case ir::LayoutKind::paged: {
      const std::string table = kernel.read(addressed_by(attention, name), DType::i32);
      const std::string lengths = kernel.read(std::string(ir::kLengthsKv), DType::i32);
      return {fmt::format("(present ? {0}[b * {1} + s / {2}] : 0) * {3}LL + s % {2} * {4}LL", table,
                          page_table_dims(attention, name)[2], layout.page, strides[0], strides[2]),
              fmt::format("s < {}[b]", lengths)};
    }
    default: break;
  }
  Located place{fmt::format("b * {}LL + s * {}LL", strides[0], strides[2]), "true"};
  if (layout_owner(name) == "o" && ignores_row_lengths(attention)) {
    place.present = fmt::format("s < {}[b]", kernel.read(std::string(ir::kLengthsQ), DType::i32));
  }
  return place;
}

}  // namespace

std::string place_text(const ir::Attention& attention, const std::string& name, const Dims4& dims,
                       codegen::KernelText& kernel) {
  const Dims4 own = logical_dims(attention, name), strides = stored_strides(attention, name);
  Located place = place_of(attention, name, kernel);
  if (dims[2] > own[2]) place.present += fmt::format(" && s < {}", own[2]);
  if (dims[3] > own[3]) place.present += fmt::format(" && d < {}", own[3]);
  return fmt::format(
      "const long long d = i % {3}, s = i / {3} % {2}, h = i / {3} / {2} % {1}, "
      "b = i / {3} / {2} / {1};\n"
      "    const bool present = {4};\n"
      "    const long long place = {5} + h * {6}LL + d * {7}LL;",
      dims[0], dims[1], dims[2], dims[3], place.present, place.batch_and_row, strides[1],
      strides[3]);
}

std::string copy_out_text(const ir::Attention& attention, const std::string& name,
                          const std::string& copy, const Dims4& copied,
                          codegen::KernelText& kernel) {
  const Dims4 dims = logical_dims(attention, name);
  const std::string text = place_text(attention, name, dims, kernel);
  const bool ragged = layout_of(attention, name).kind == ir::LayoutKind::thd;
  return text +
         fmt::format("\n    {}out[place] = present ? {}[((b * {} + h) * {} + s) * {} + d] : 0;",
                     ragged ? "if (present) " : "", copy, copied[1], copied[2], copied[3]);
}

}  // namespace attn::engines
