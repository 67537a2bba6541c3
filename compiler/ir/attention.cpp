#include "compiler/ir/attention.h"

#include <algorithm>

namespace attn::ir {
namespace {

constexpr std::string_view kDimNames[] = {"B", "Hq", "Hkv", "Sq", "Skv", "Dqk", "Dv"};
constexpr std::string_view kLayoutNames[] = {"bshd", "bhsd", "sbhd", "strided"};
constexpr std::string_view kAlignNames[] = {"top_left", "bottom_right"};

template <typename Named>
const Named* find_named(const std::vector<Named>& list, std::string_view name) {
  const auto found = std::ranges::find(list, name, &Named::name);
  return found == list.end() ? nullptr : &*found;
}

}  // namespace

std::string_view to_string(Dim dim) { return kDimNames[static_cast<std::size_t>(dim)]; }

std::optional<Dim> parse_dim(std::string_view text) {
  for (Dim dim : kDims) {
    if (to_string(dim) == text) return dim;
  }
  return std::nullopt;
}

bool Dims::bound() const {
  return std::ranges::all_of(sizes_, [](const auto& size) { return size.has_value(); });
}

std::string_view to_string(LayoutKind kind) { return kLayoutNames[static_cast<std::size_t>(kind)]; }

std::optional<LayoutKind> parse_layout_kind(std::string_view text) {
  for (LayoutKind kind :
       {LayoutKind::bshd, LayoutKind::bhsd, LayoutKind::sbhd, LayoutKind::strided}) {
    if (to_string(kind) == text) return kind;
  }
  return std::nullopt;
}

std::array<std::int64_t, 4> strides_of(const Layout& layout,
                                       const std::array<std::int64_t, 4>& dims) {
  const auto [b, h, s, d] = dims;
  switch (layout.kind) {
    case LayoutKind::bshd: return {s * h * d, d, h * d, 1};
    case LayoutKind::bhsd: return {h * s * d, s * d, d, 1};
    case LayoutKind::sbhd: return {h * d, d, b * h * d, 1};
    case LayoutKind::strided: return layout.strides;
  }
  return layout.strides;
}

std::string_view to_string(Align align) { return kAlignNames[static_cast<std::size_t>(align)]; }

const CapturedTensor* Attention::find_tensor(std::string_view tensor) const {
  return find_named(tensors, tensor);
}

const Param* Attention::find_param(std::string_view param) const {
  return find_named(params, param);
}

std::vector<ExprId> Attention::roots() const {
  std::vector<ExprId> ids = {scale, score};
  ids.insert(ids.end(), masks.begin(), masks.end());
  for (const CapturedTensor& tensor : tensors) {
    ids.insert(ids.end(), tensor.extents.begin(), tensor.extents.end());
  }
  return ids;
}

Type value_type(DType dtype) {
  if (dtype == DType::boolean) return Type::boolean;
  return is_float(dtype) ? Type::real : Type::integer;
}

}  // namespace attn::ir
