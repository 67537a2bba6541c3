#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/rows.h"
#include "runtime/api/sized.h"

namespace attn::api {
namespace {

using operations::MergeParameters;
using operations::MergeSource;

constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kWarp = 32;
constexpr ElementType kFloat = {operations::kF32, sizeof(float)};

// A stride in elements; of a dimension of size 1 it does not matter.
std::int64_t stride_of(std::int64_t stride, std::int64_t size) { return size > 1 ? stride : 0; }

// An output in the place of a result has its form: rows are read after others are written.
Status check_in_place(const char* name, const MergeSource& source, const attn_rows& o,
                      const attn_merge_arguments& all) {
  const bool other_o = o.dtype != all.out.dtype ||
                       source.o_row != stride_of(all.out.row_stride, all.rows) ||
                       source.o_head != stride_of(all.out.head_stride, o.heads);
  const bool other_lse = source.lse_row != stride_of(all.lse_row_stride, all.rows) ||
                         source.lse_head != stride_of(all.lse_head_stride, o.heads);
  if (!(source.o == all.out.data && other_o) && !(source.lse == all.lse && other_lse)) return {};
  return Status(
      ErrorCode::binding,
      fmt::format("{} is written in place, but with another type or other strides", name));
}

Result<MergeSource> source_of(const char* name, const char* lse_name, const attn_partial& partial,
                              const attn_merge_arguments& all, Vector& vector) {
  if (partial.count == 0) return MergeSource{};
  if (partial.count < 0 || partial.count > kMost) {
    return {ErrorCode::binding, fmt::format("{} has a count of {} results", name, partial.count)};
  }
  if (partial.o.data == nullptr || partial.lse == nullptr) {
    return {ErrorCode::binding, fmt::format("{} and {} must be given together", name, lse_name)};
  }
  ATTN_ASSIGN(const ElementType type, check_rows(name, partial.o));
  ATTN_RETURN_IF_ERROR(check_same(name, partial.o, "out", all.out));
  ATTN_RETURN_IF_ERROR(check_address(lse_name, partial.lse, kFloat));
  const attn_rows& o = partial.o;
  MergeSource source{};
  source.o = o.data;
  source.lse = partial.lse;
  source.o_result = stride_of(partial.o_stride, partial.count);
  source.o_row = stride_of(o.row_stride, all.rows);
  source.o_head = stride_of(o.head_stride, o.heads);
  source.lse_result = stride_of(partial.lse_stride, partial.count);
  source.lse_row = stride_of(partial.lse_row_stride, all.rows);
  source.lse_head = stride_of(partial.lse_head_stride, o.heads);
  source.count = static_cast<int>(partial.count);
  source.type = type.number;
  ATTN_RETURN_IF_ERROR(check_in_place(name, source, o, all));
  vector.fit(o.data,
             {source.o_result * type.bytes, source.o_row * type.bytes, source.o_head * type.bytes},
             type);
  return source;
}

Result<MergeParameters> parameters_of(const attn_merge_arguments& all) {
  if (all.out.data == nullptr) return {ErrorCode::binding, "out must not be NULL"};
  if (all.a.count == 0 && all.b.count == 0) return {ErrorCode::binding, "a and b are both absent"};
  ATTN_ASSIGN(const ElementType type, check_rows("out", all.out));
  if (all.rows > kMost / all.out.heads) {
    return {ErrorCode::binding, fmt::format("out has {} rows of {} heads; 2^31 - 1 is the most",
                                            all.rows, all.out.heads)};
  }
  if (all.lse != nullptr) ATTN_RETURN_IF_ERROR(check_address("lse", all.lse, kFloat));
  MergeParameters made{};
  Vector vector;
  vector.divide(all.out.width);
  ATTN_ASSIGN(made.sources[0], source_of("a", "a's lse", all.a, all, vector));
  ATTN_ASSIGN(made.sources[1], source_of("b", "b's lse", all.b, all, vector));
  made.out = all.out.data;
  made.lse = all.lse;
  made.rows = static_cast<int>(all.rows);
  made.heads = static_cast<int>(all.out.heads);
  made.width = static_cast<int>(all.out.width);
  made.out_row = stride_of(all.out.row_stride, all.rows);
  made.out_head = stride_of(all.out.head_stride, all.out.heads);
  made.lse_row = stride_of(all.lse_row_stride, all.rows);
  made.lse_head = stride_of(all.lse_head_stride, all.out.heads);
  made.type = type.number;
  vector.fit(made.out, {made.out_row * type.bytes, made.out_head * type.bytes}, type);
  made.elements = vector.elements();
  const auto vectors = static_cast<std::uint64_t>(made.width / made.elements);
  made.threads = static_cast<int>(std::min<std::uint64_t>(kWarp, std::bit_ceil(vectors)));
  return made;
}

}  // namespace

ATTN_API attn_status attn_merge(attn_runtime* runtime, const attn_merge_arguments* arguments,
                                void* stream, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{runtime, "the runtime"}, {arguments, "the arguments"}}));
    ATTN_ASSIGN(const attn_merge_arguments read, read_sized(arguments));
    if (read.rows < 0) {
      return Status(ErrorCode::invalid_argument,
                    fmt::format("rows is {}; it must not be negative", read.rows));
    }
    if (read.rows == 0) return {};
    ATTN_ASSIGN(const MergeParameters made, parameters_of(read));
    const std::int64_t threads = read.rows * made.heads * made.threads;
    const std::int64_t blocks = (threads + operations::kThreads - 1) / operations::kThreads;
    return runtime->runtime->operations().merge(made, blocks, stream);
  });
}

}  // namespace attn::api
