#include "compiler/ir/cache_scales.h"

#include <algorithm>

namespace attn::ir {
namespace {

constexpr CacheScaleInfo kCacheScales[] = {
#define ATTN_CACHE_SCALE(name, of_batch, of_head, of_token, meaning) \
  {#name, of_batch, of_head, of_token, meaning},
#include "compiler/ir/cache_scales.def"
#undef ATTN_CACHE_SCALE
};

}  // namespace

std::span<const CacheScaleInfo> cache_scales() { return kCacheScales; }

const CacheScaleInfo& info(CacheScale scale) {
  return kCacheScales[static_cast<std::size_t>(scale)];
}

std::string_view to_string(CacheScale scale) { return info(scale).name; }

std::optional<CacheScale> parse_cache_scale(std::string_view text) {
  const auto* found = std::ranges::find(kCacheScales, text, &CacheScaleInfo::name);
  if (found == std::end(kCacheScales)) return std::nullopt;
  return static_cast<CacheScale>(found - std::begin(kCacheScales));
}

bool is_cache_type(DType type) { return is_fp8(type) || type == DType::i8; }

std::vector<ExprId> extents_of_scales(CacheScale scale, Attention& attention) {
  const CacheScaleInfo& of = info(scale);
  Dag& dag = attention.dag;
  std::vector<ExprId> extents;
  const auto add = [&](bool has, Dim dim) {
    if (!has) return;
    const auto known = attention.dims.get(dim);
    extents.push_back(known ? dag.integer(*known) : dag.dim(std::string(to_string(dim))));
  };
  add(of.of_batch, Dim::B);
  add(of.of_head, Dim::Hkv);
  if (of.of_token && !of.of_head) extents.push_back(dag.integer(1));
  add(of.of_token, Dim::Skv);
  if (extents.empty()) extents.push_back(dag.integer(1));
  return extents;
}

bool has_token_scales(const Attention& attention) {
  return attention.cache && info(attention.cache->by).of_token;
}

std::int64_t bytes_of_token(const Attention& attention) {
  if (!attention.cache) return 0;
  const Dims& d = attention.dims;
  const auto width = [&](const char* name) {
    return static_cast<std::int64_t>(size_of(attention.dtype_of(name)));
  };
  const CacheScaleInfo& of = info(attention.cache->by);
  const std::int64_t scales = !of.of_token ? 0 : of.of_head ? d[Dim::Hkv] : 1;
  return d[Dim::Hkv] * (d[Dim::Dqk] * width("k") + d[Dim::Dv] * width("v")) +
         2 * scales * static_cast<std::int64_t>(size_of(DType::f32));
}

std::int64_t index_of_scale(CacheScale scale, const Dims& dims, const CachePlace& at) {
  const CacheScaleInfo& of = info(scale);
  std::int64_t index = of.of_batch ? at.batch : 0;
  if (of.of_head) index = index * dims[Dim::Hkv] + at.head;
  if (of.of_token) index = index * dims[Dim::Skv] + at.token;
  return index;
}

}  // namespace attn::ir
