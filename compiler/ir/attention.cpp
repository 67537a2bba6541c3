#include "compiler/ir/attention.h"

#include <algorithm>
#include <cmath>

#include "compiler/ir/block_scales.h"

namespace attn::ir {
namespace {

constexpr std::string_view kLayoutNames[] = {"bshd", "bhsd",  "sbhd",       "strided",
                                             "thd",  "paged", "packed_qkv", "packed_kv"};
constexpr std::string_view kAlignNames[] = {"top_left", "bottom_right"};
constexpr std::string_view kNormalizeNames[] = {"softmax", "sigmoid", "linear", "quotient"};
constexpr std::string_view kScalingNames[] = {"per_tensor", "mxfp8"};

template <typename Named>
const Named* find_named(const std::vector<Named>& list, std::string_view name) {
  const auto found = std::ranges::find(list, name, &Named::name);
  return found == list.end() ? nullptr : &*found;
}

// The roots of a const or mutable owner.
template <typename Owner>
auto places_in(Owner& owner) {
  std::vector<decltype(&owner.scale)> places = {&owner.scale, &owner.score};
  for (auto& mask : owner.masks) places.push_back(&mask);
  if (owner.quotient) places.insert(places.end(), {&owner.quotient->f, &owner.quotient->g});
  if (owner.sink) places.push_back(&*owner.sink);
  if (owner.epilogue) places.push_back(&*owner.epilogue);
  if (owner.cache && owner.cache->factor_of_queries)
    places.push_back(&*owner.cache->factor_of_queries);
  if (owner.dropout && owner.dropout->keep) places.push_back(&*owner.dropout->keep);
  if (owner.dropout && owner.dropout->origin) {
    auto& origin = *owner.dropout->origin;
    places.insert(places.end(), {&origin.head, &origin.row, &origin.column});
  }
  for (auto* prologue : {&owner.prologue_q, &owner.prologue_k}) {
    if (!*prologue) continue;
    places.push_back(&(*prologue)->value);
    for (auto& sum : (*prologue)->sums) places.push_back(&sum);
  }
  for (auto& tensor : owner.tensors) {
    for (auto& extent : tensor.extents) places.push_back(&extent);
    if (tensor.fallback) places.push_back(&*tensor.fallback);
    if (tensor.runs) places.push_back(&*tensor.runs);
    if (tensor.longest_run) places.push_back(&*tensor.longest_run);
  }
  for (auto& sum : owner.sums) {
    for (auto& extent : sum.tensor.extents) places.push_back(&extent);
    places.push_back(&sum.value);
  }
  for (auto& branch : owner.branches) {
    for (auto& extent : branch.o.extents) places.push_back(&extent);
  }
  return places;
}

}  // namespace

bool is_scale(std::string_view name) {
  return std::ranges::find(kScales, name, &Scale::name) != std::end(kScales) ||
         find_block_scale(name) != nullptr;
}

bool Dims::bound() const {
  return std::ranges::all_of(sizes_, [](const auto& size) { return size.has_value(); });
}

std::string_view to_string(LayoutKind kind) { return kLayoutNames[static_cast<std::size_t>(kind)]; }

std::optional<LayoutKind> parse_layout_kind(std::string_view text) {
  const auto* found = std::ranges::find(kLayoutNames, text);
  if (found == std::end(kLayoutNames)) return std::nullopt;
  return static_cast<LayoutKind>(found - std::begin(kLayoutNames));
}

std::array<std::int64_t, 4> strides_of(const Layout& layout,
                                       const std::array<std::int64_t, 4>& dims, Heads heads) {
  const auto [b, h, s, d] = dims;
  switch (layout.kind) {
    case LayoutKind::bshd: return {s * h * d, d, h * d, 1};
    case LayoutKind::bhsd: return {h * s * d, s * d, d, 1};
    case LayoutKind::sbhd: return {h * d, d, b * h * d, 1};
    case LayoutKind::strided: return layout.strides;
    case LayoutKind::thd:
      if (layout.strides[2] != 0) return layout.strides;
      return {s * h * d, d, h * d, 1};
    case LayoutKind::paged:
      if (layout.strides[2] != 0) return layout.strides;
      return {h * layout.page * d, layout.page * d, d, 1};
    case LayoutKind::packed_qkv: {
      const std::int64_t row = (heads.q + 2 * heads.kv) * d;
      return {s * row, d, row, 1};
    }
    case LayoutKind::packed_kv: return {s * 2 * heads.kv * d, d, 2 * heads.kv * d, 1};
  }
  return layout.strides;
}

std::string_view to_string(Align align) { return kAlignNames[static_cast<std::size_t>(align)]; }

std::string_view to_string(Shard shard) { return kShardNames[static_cast<std::size_t>(shard)]; }

std::optional<Shard> parse_shard(std::string_view text) {
  const auto* found = std::ranges::find(kShardNames, text);
  if (found == std::end(kShardNames)) return std::nullopt;
  return static_cast<Shard>(found - std::begin(kShardNames));
}

std::string_view to_string(Normalize normalize) {
  return kNormalizeNames[static_cast<std::size_t>(normalize)];
}

std::optional<Normalize> parse_normalize(std::string_view text) {
  const auto* found = std::ranges::find(kNormalizeNames, text);
  if (found == std::end(kNormalizeNames)) return std::nullopt;
  return static_cast<Normalize>(found - std::begin(kNormalizeNames));
}

std::string_view to_string(Scaling scaling) {
  return kScalingNames[static_cast<std::size_t>(scaling)];
}

std::optional<Scaling> parse_scaling(std::string_view text) {
  const auto* found = std::ranges::find(kScalingNames, text);
  if (found == std::end(kScalingNames)) return std::nullopt;
  return static_cast<Scaling>(found - std::begin(kScalingNames));
}

DType Attention::dtype_of(std::string_view tensor) const {
  if (cache && (tensor == "k" || tensor == "v")) return tensor == "k" ? cache->k : cache->v;
  if (!quantize) return dtype;
  if (tensor == "o") return quantize->o;
  if (tensor == "do") return quantize->d_o;
  return tensor.size() == 2 && tensor.starts_with('d') ? quantize->gradients : dtype;
}

bool Attention::has(const Scale& one) const {
  if (!quantize || is_mxfp8() || (one.backward && gradients.empty())) return false;
  return one.of.empty() || is_fp8(dtype_of(one.of));
}

const CapturedTensor* Attention::find_tensor(std::string_view tensor) const {
  const CapturedTensor* captured = find_named(tensors, tensor);
  const KeySum* sum = captured == nullptr ? find_sum(tensor) : nullptr;
  if (captured != nullptr || sum != nullptr) return sum != nullptr ? &sum->tensor : captured;
  const auto made = std::ranges::find_if(
      branches, [tensor](const Branch& each) { return each.o.name == tensor; });
  return made == branches.end() ? nullptr : &made->o;
}

std::string Branch::outer(const std::string& tensor) const {
  const auto found = inputs.find(tensor);
  return found == inputs.end() ? tensor : found->second;
}

std::string output_of_branch(std::string_view branch) { return std::string(branch) + "_o"; }

const KeySum* Attention::find_sum(std::string_view tensor) const {
  const auto found = std::ranges::find(
      sums, tensor, [](const KeySum& sum) -> std::string_view { return sum.tensor.name; });
  return found == sums.end() ? nullptr : &*found;
}

std::int64_t Attention::keys_of_row() const {
  if (!gather) return dims[Dim::Skv];
  return fold_integer(dag, find_tensor(gather->keys)->extents[2], dims).value_or(dims[Dim::Skv]);
}

std::int64_t Dropout::dropped() const {
  const double numbers = std::round(probability * static_cast<double>(kRandomNumbers));
  return std::min(static_cast<std::int64_t>(numbers), kRandomNumbers - 1);
}

double Dropout::exact_probability() const {
  if (keep) return probability;
  return static_cast<double>(dropped()) / static_cast<double>(kRandomNumbers);
}

std::string Attention::unused_name(std::string wanted) const {
  while (find_tensor(wanted) != nullptr || find_param(wanted) != nullptr) wanted += '_';
  return wanted;
}

const Param* Attention::find_param(std::string_view param) const {
  return find_named(params, param);
}

std::vector<ExprId> Attention::roots() const {
  std::vector<ExprId> ids;
  for (const ExprId* place : places_in(*this)) ids.push_back(*place);
  return ids;
}

std::vector<ExprId*> Attention::root_places() { return places_in(*this); }

Attention compact(const Attention& attention) {
  Attention result = attention;
  result.dag = {};
  std::vector<ExprId> numbers(attention.dag.size());
  for (const ExprId id : reachable(attention.dag, attention.roots())) {
    const Node& node = attention.dag[id];
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(numbers[operand]);
    numbers[id] = result.dag.add_like(node, operands);
  }
  for (ExprId* place : result.root_places()) *place = numbers[*place];
  for (Branch& each : result.branches) each.attention = compact(each.attention);
  return result;
}

bool is_same(const Attention& a, const Attention& b) { return compact(a) == compact(b); }

bool reads_unit(const Attention& attention) {
  if (!attention.quotient) return false;
  const ExprId roots[] = {attention.quotient->f, attention.quotient->g};
  const std::vector<ExprId> below = reachable(attention.dag, roots);
  return std::ranges::any_of(below, [&](ExprId id) { return attention.dag[id].is(Op::unit_); });
}

Type value_type(DType dtype) {
  if (dtype == DType::boolean) return Type::boolean;
  if (dtype == DType::i64) return Type::wide;
  return is_float(dtype) ? Type::real : Type::integer;
}

}  // namespace attn::ir
