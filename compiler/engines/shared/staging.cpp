#include "compiler/engines/shared/staging.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"

namespace attn::engines {
namespace {

using ir::LayoutKind;

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

// Elements: 16 bytes.
std::int64_t multiple_of(const ir::Attention& attention) {
  return 16 / static_cast<std::int64_t>(size_of(attention.dtype));
}

class StagingMaker {
 public:
  explicit StagingMaker(const ir::Attention& attention) : attention_(attention) {}

  Result<Staging> make(const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs) && {
    codegen::KernelText before, after;
    for (const std::string& name : inputs) {
      if (is_staged(attention_, name)) ATTN_RETURN_IF_ERROR(pad(name, before));
    }
    for (const std::string& name : outputs) {
      if (is_staged(attention_, name)) cut(name, after);
    }
    if (!before.empty()) staging_.before.push_back(std::move(before).finish(false));
    if (!after.empty()) staging_.after.push_back(std::move(after).finish(false));
    return std::move(staging_);
  }

 private:
  Status pad(const std::string& name, codegen::KernelText& kernel) {
    if (layout_of(attention_, name).kind == LayoutKind::paged) {
      return unsupported(
          attention_.pos,
          fmt::format("cuDNN requires head dimensions that are multiples of {}, and `{}` has {}",
                      multiple_of(attention_), name, logical_dims(attention_, name)[3]),
          "pad paged tensors with zeros in memory to such a dimension");
    }
    staging_.internals.push_back(staged_info(attention_, name));
    const Dims4 dims = staged_dims(attention_, name);
    const std::string input = kernel.read(name, attention_.dtype_of(name));
    kernel.make(staged_name(name), attention_.dtype_of(name), count_of(dims),
                name + ", padded with zeros",
                fmt::format("{}\n    out[i] = present ? {}[place] : 0;",
                            place_text(attention_, name, dims, kernel), input));
    return {};
  }

  void cut(const std::string& name, codegen::KernelText& kernel) {
    staging_.internals.push_back(staged_info(attention_, name));
    const Dims4 dims = logical_dims(attention_, name);
    const std::string input = kernel.read(staged_name(name), attention_.dtype_of(name));
    kernel.make(name, attention_.dtype_of(name), count_of(dims), "without padding",
                copy_out_text(attention_, name, input, staged_dims(attention_, name), kernel));
  }

  const ir::Attention& attention_;
  Staging staging_;
};

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

bool repeats(const ir::Layout& layout) {
  return layout.kind == LayoutKind::strided &&
         std::ranges::find(layout.strides, 0) != layout.strides.end();
}

bool is_staged(const ir::Attention& attention, std::string_view name) {
  const Dims4 dims = logical_dims(attention, name);
  const std::int64_t multiple = multiple_of(attention);
  if (dims[3] % multiple != 0) return true;
  const ir::Layout& layout = layout_of(attention, name);
  if (ignores_row_lengths(attention)) {
    const std::string_view owner = layout_owner(name);
    if (owner == "o" || (owner == "q" && layout.kind == LayoutKind::thd)) return true;
  }
  if (layout.kind != LayoutKind::strided && layout.strides[2] == 0) return false;
  if (repeats(layout)) return true;
  for (std::size_t i = 0; i < 3; ++i) {
    if (dims[i] > 1 && layout.strides[i] % multiple != 0) return true;
  }
  return layout.strides[3] != 1;
}

std::string staged_name(std::string_view name) { return std::string(name) + ".padded"; }

Dims4 staged_dims(const ir::Attention& attention, std::string_view name) {
  Dims4 dims = logical_dims(attention, name);
  const std::int64_t multiple = multiple_of(attention);
  dims[3] = (dims[3] + multiple - 1) / multiple * multiple;
  return dims;
}

plan::TensorInfo staged_info(const ir::Attention& attention, std::string_view name) {
  const Dims4 dims = staged_dims(attention, name), strides = packed_strides(dims);
  return {staged_name(name),          plan::TensorRole::internal,       attention.dtype_of(name),
          {dims.begin(), dims.end()}, {strides.begin(), strides.end()}, plan::kInternalAlignment};
}

Result<Staging> staging(const ir::Attention& attention, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs) {
  return StagingMaker(attention).make(inputs, outputs);
}

}  // namespace attn::engines
