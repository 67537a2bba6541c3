#include "compiler/lowering/staging.h"

#include <fmt/format.h>

#include "compiler/lowering/controls.h"
#include "compiler/lowering/kernel_text.h"
#include "compiler/lowering/operands.h"
#include "compiler/lowering/unsupported.h"

namespace attn::lowering {
namespace {

constexpr std::int64_t kMultiple = 8;  // elements: 16 bytes

std::int64_t count_of(const Dims4& dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }

// `i` of a packed tensor of these dims as its place in one of those strides, its last index `d`.
std::string decode(const Dims4& dims, const Dims4& strides) {
  return fmt::format(
      "const long long d = i % {3}, s = i / {3} % {2}, h = i / {3} / {2} % {1}, "
      "b = i / {3} / {2} / {1};\n"
      "    const long long place = b * {4}LL + h * {5}LL + s * {6}LL + d * {7}LL;",
      dims[0], dims[1], dims[2], dims[3], strides[0], strides[1], strides[2], strides[3]);
}

class Maker {
 public:
  explicit Maker(const ir::Attention& attention) : attention_(attention) {}

  Result<Staging> make() && {
    KernelText before, after;
    for (const char* name : {"q", "k", "v"}) {
      if (is_staged(attention_, name)) ATTN_RETURN_IF_ERROR(pad(name, before));
    }
    if (is_staged(attention_, "o")) ATTN_RETURN_IF_ERROR(cut("o", after));
    if (!before.empty()) staging_.before.push_back(std::move(before).finish(false));
    if (!after.empty()) staging_.after.push_back(std::move(after).finish(false));
    return std::move(staging_);
  }

 private:
  Status check_layout(std::string_view name) const {
    if (addressed_by(attention_, name).empty()) return {};
    return unsupported(
        attention_.pos,
        fmt::format("cuDNN wants head dimensions that are multiples of {}, and `{}` has {}",
                    kMultiple, name, logical_dims(attention_, name)[3]),
        "thd and paged tensors must have such a dimension in memory, padded with zeros");
  }

  void add_internal(std::string_view name) {
    const Dims4 dims = staged_dims(attention_, name), strides = packed_strides(dims);
    staging_.internals.push_back({staged_name(name),
                                  plan::TensorRole::internal,
                                  attention_.dtype,
                                  {dims.begin(), dims.end()},
                                  {strides.begin(), strides.end()},
                                  plan::kInternalAlignment});
  }

  Status pad(const std::string& name, KernelText& kernel) {
    ATTN_RETURN_IF_ERROR(check_layout(name));
    add_internal(name);
    const Dims4 dims = staged_dims(attention_, name);
    const std::string input = kernel.read(name, attention_.dtype);
    kernel.make(staged_name(name), attention_.dtype, count_of(dims), name + ", padded with zeros",
                fmt::format("{}\n    out[i] = d < {} ? {}[place] : 0;",
                            decode(dims, stored_strides(attention_, name)),
                            logical_dims(attention_, name)[3], input));
    return {};
  }

  Status cut(const std::string& name, KernelText& kernel) {
    ATTN_RETURN_IF_ERROR(check_layout(name));
    add_internal(name);
    const Dims4 dims = logical_dims(attention_, name);
    const std::string input = kernel.read(staged_name(name), attention_.dtype);
    kernel.make(name, attention_.dtype, count_of(dims), "what is not padding",
                fmt::format("{}\n    out[place] = {}[i / {} * {} + d];",
                            decode(dims, stored_strides(attention_, name)), input, dims[3],
                            staged_dims(attention_, name)[3]));
    return {};
  }

  const ir::Attention& attention_;
  Staging staging_;
};

}  // namespace

bool is_staged(const ir::Attention& attention, std::string_view name) {
  const Dims4 dims = logical_dims(attention, name);
  if (dims[3] % kMultiple != 0) return true;
  const ir::Layout& layout = attention.layouts.find(name)->second;
  if (layout.kind != ir::LayoutKind::strided) return false;
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
