// Operations beside attention, for paged caches: append and merge. Part of attn.hpp.
#pragma once

#include <cstdint>

#include "operations.h"
#include "runtime.hpp"
#include "tensor.hpp"

namespace attn {
inline namespace v2 {

// The tensor [rows, heads, width], contiguous.
inline attn_rows rows(void* data, DType dtype, std::int64_t heads, std::int64_t width) {
  return {data, static_cast<attn_dtype>(dtype), 0, heads, width, heads * width, width};
}
// The tensor [rows, heads, width] with these strides, in elements.
inline attn_rows rows(void* data, DType dtype, std::int64_t heads, std::int64_t width,
                      std::int64_t row_stride, std::int64_t head_stride) {
  return {data, static_cast<attn_dtype>(dtype), 0, heads, width, row_stride, head_stride};
}
// A pool of pages with these strides, in elements. `descale`: one f32 in device memory, or null.
inline attn_pool pool(void* data, DType dtype, std::int64_t page_stride, std::int64_t row_stride,
                      std::int64_t head_stride, const float* descale = nullptr) {
  return {data, static_cast<attn_dtype>(dtype), 0, page_stride, row_stride, head_stride, descale};
}

// What append is given: the fields of attn_append_arguments, at first all 0.
struct AppendArguments : attn_append_arguments {
  AppendArguments() : attn_append_arguments{} { size = sizeof(attn_append_arguments); }
};
// What merge is given: the fields of attn_merge_arguments, at first all 0.
struct MergeArguments : attn_merge_arguments {
  MergeArguments() : attn_merge_arguments{} { size = sizeof(attn_merge_arguments); }
};

// Writes new keys and values to pages of a cache, and rotates queries beside them: see attn_append.
// Enqueues on a stream, and returns without waiting. Errors: binding, invalid_argument,
// unsupported, cuda.
inline Status append(const Runtime& runtime, const AppendArguments& arguments, void* stream) {
  const attn_append_arguments* plain = &arguments;
  return detail::Caller()(attn_append, runtime.handle(), plain, stream);
}
// Merges results over parts of the keys to the one over all: see attn_merge. Enqueues on a stream,
// and returns without waiting. Errors: binding, invalid_argument, unsupported, cuda.
inline Status merge(const Runtime& runtime, const MergeArguments& arguments, void* stream) {
  const attn_merge_arguments* plain = &arguments;
  return detail::Caller()(attn_merge, runtime.handle(), plain, stream);
}

}  // namespace v2
}  // namespace attn
