// Scales of keys and values of 8 bits beside queries of 16 (Attention::cache).
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::ir {

// A row of cache_scales.def.
struct CacheScaleInfo {
  std::string_view name;
  bool of_batch, of_head, of_token;
  std::string_view meaning;
};
std::span<const CacheScaleInfo> cache_scales();  // in the order of CacheScale
const CacheScaleInfo& info(CacheScale scale);
std::string_view to_string(CacheScale scale);
std::optional<CacheScale> parse_cache_scale(std::string_view text);

// The names of the scales, f32: what a stored element is multiplied with.
inline constexpr std::string_view kKeyScale = "k_scale", kValueScale = "v_scale";
inline bool is_cache_scale(std::string_view name) {
  return name == kKeyScale || name == kValueScale;
}

// Whether keys and values may have the type: 8 bits, of floats or signed integers.
bool is_cache_type(DType type);

// The extents of both scales, as expressions that are added to the DAG of the attention.
std::vector<ExprId> extents_of_scales(CacheScale scale, Attention& attention);

// Whether each key has scales of its own: tensors [B, Hkv, Skv], or with one head for all.
bool has_token_scales(const Attention& attention);

// The index of the scale of a key in a row-major tensor of scales.
struct CachePlace {
  std::int64_t batch, head, token;  // head: of keys
};
std::int64_t index_of_scale(CacheScale scale, const Dims& dims, const CachePlace& at);

// Bytes of a key and its value in all key heads, with scales of their own; 0 without a cache. The
// sizes of heads must be bound.
std::int64_t bytes_of_token(const Attention& attention);

}  // namespace attn::ir
