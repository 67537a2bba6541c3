#include "compiler/lowering/staging.h"

#include <fmt/format.h>

#include "compiler/lowering/controls.h"
#include "compiler/lowering/kernel_text.h"
#include "compiler/lowering/lengths.h"
#include "compiler/lowering/operands.h"
#include "compiler/lowering/unsupported.h"

namespace attn::lowering {
namespace {

using ir::LayoutKind;

constexpr std::int64_t kMultiple = 8;  // elements: 16 bytes

const ir::Layout& layout_of(const ir::Attention& attention, std::string_view name) {
  return attention.layouts.find(name)->second;
}

std::int64_t count_of(const Dims4& dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }

class Maker {
 public:
  explicit Maker(const ir::Attention& attention) : attention_(attention) {}

  Result<Staging> make() && {
    KernelText before, after;
    for (const char* name : {"q", "k", "v"}) {
      if (is_staged(attention_, name)) ATTN_RETURN_IF_ERROR(pad(name, before));
    }
    if (is_staged(attention_, "o")) cut("o", after);
    if (!before.empty()) staging_.before.push_back(std::move(before).finish(false));
    if (!after.empty()) staging_.after.push_back(std::move(after).finish(false));
    return std::move(staging_);
  }

 private:
  void add_internal(std::string_view name) {
    const Dims4 dims = staged_dims(attention_, name), strides = packed_strides(dims);
    staging_.internals.push_back({staged_name(name),
                                  plan::TensorRole::internal,
                                  attention_.dtype,
                                  {dims.begin(), dims.end()},
                                  {strides.begin(), strides.end()},
                                  plan::kInternalAlignment});
  }

  // Statements that name, of `i` in a packed tensor of these dims: its indices b, h, s and d, the
  // place of that element in the tensor, and whether the tensor has its row.
  std::string locate(const std::string& name, const Dims4& dims, KernelText& kernel) const {
    const Dims4 strides = stored_strides(attention_, name);
    const bool ragged = layout_of(attention_, name).kind == LayoutKind::thd;
    std::string row = "s", present = "true";
    const std::string batch = fmt::format("b * {}LL", ragged ? 0 : strides[0]);
    if (ragged) {
      const std::string starts = kernel.read(addressed_by(attention_, name), DType::i32);
      row = fmt::format("({}[b] + s)", starts);
      present = fmt::format("s < {0}[b + 1] - {0}[b]", starts);
    } else if (name == "o" && ignores_row_lengths(attention_)) {
      present = fmt::format("s < {}[b]", kernel.read(std::string(ir::kLengthsQ), DType::i32));
    }
    return fmt::format(
        "const long long d = i % {3}, s = i / {3} % {2}, h = i / {3} / {2} % {1}, "
        "b = i / {3} / {2} / {1};\n"
        "    const long long place = {4} + h * {5}LL + {6} * {7}LL + d * {8}LL;\n"
        "    const bool present = {9};",
        dims[0], dims[1], dims[2], dims[3], batch, strides[1], row, strides[2], strides[3],
        present);
  }

  Status pad(const std::string& name, KernelText& kernel) {
    if (layout_of(attention_, name).kind == LayoutKind::paged) {
      return unsupported(
          attention_.pos,
          fmt::format("cuDNN wants head dimensions that are multiples of {}, and `{}` has {}",
                      kMultiple, name, logical_dims(attention_, name)[3]),
          "paged tensors must have such a dimension in memory, padded with zeros");
    }
    add_internal(name);
    const Dims4 dims = staged_dims(attention_, name);
    const std::string input = kernel.read(name, attention_.dtype);
    kernel.make(staged_name(name), attention_.dtype, count_of(dims), name + ", padded with zeros",
                fmt::format("{}\n    out[i] = present && d < {} ? {}[place] : 0;",
                            locate(name, dims, kernel), logical_dims(attention_, name)[3], input));
    return {};
  }

  void cut(const std::string& name, KernelText& kernel) {
    add_internal(name);
    const Dims4 dims = logical_dims(attention_, name);
    const std::string input = kernel.read(staged_name(name), attention_.dtype);
    const bool ragged = layout_of(attention_, name).kind == LayoutKind::thd;
    kernel.make(name, attention_.dtype, count_of(dims), "what is not padding",
                fmt::format("{}\n    {}out[place] = present ? {}[i / {} * {} + d] : 0;",
                            locate(name, dims, kernel), ragged ? "if (present) " : "", input,
                            dims[3], staged_dims(attention_, name)[3]));
  }

  const ir::Attention& attention_;
  Staging staging_;
};

}  // namespace

bool is_staged(const ir::Attention& attention, std::string_view name) {
  const Dims4 dims = logical_dims(attention, name);
  if (dims[3] % kMultiple != 0) return true;
  const ir::Layout& layout = layout_of(attention, name);
  if (ignores_row_lengths(attention)) {
    if (name == "o" || (name == "q" && layout.kind == LayoutKind::thd)) return true;
  }
  if (layout.kind != LayoutKind::strided) return false;
  for (std::size_t i = 0; i < 3; ++i) {
    if (dims[i] > 1 && layout.strides[i] % kMultiple != 0) return true;
  }
  return layout.strides[3] != 1;
}

std::string staged_name(std::string_view name) { return std::string(name) + ".padded"; }

Dims4 staged_dims(const ir::Attention& attention, std::string_view name) {
  Dims4 dims = logical_dims(attention, name);
  dims[3] = (dims[3] + kMultiple - 1) / kMultiple * kMultiple;
  return dims;
}

Result<Staging> staging(const ir::Attention& attention) { return Maker(attention).make(); }

}  // namespace attn::lowering
