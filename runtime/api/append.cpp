#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/rows.h"
#include "runtime/api/sized.h"

namespace attn::api {
namespace {

using operations::AppendParameters;
using operations::AppendPart;

constexpr std::int64_t kMostRows = std::int64_t{1} << 29;
constexpr std::int64_t kMostSlots = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kUnitsOfBlock = 4 * operations::kThreads;  // about

Status wrong(std::string message) { return Status(ErrorCode::binding, std::move(message)); }

class Append {
 public:
  explicit Append(const attn_append_arguments& arguments) : all_(arguments) {}

  // Checks the arguments. Errors: binding.
  Status read() {
    if (all_.k.data == nullptr && all_.v.data == nullptr && all_.q.data == nullptr)
      return wrong("k, v and q are all absent");
    parameters_.rows = static_cast<int>(all_.rows);
    parameters_.outside = all_.outside;
    if (all_.k.data != nullptr || all_.v.data != nullptr) ATTN_RETURN_IF_ERROR(read_slots());
    ATTN_RETURN_IF_ERROR(read_rotary());
    ATTN_RETURN_IF_ERROR(add_pool("k", all_.k, "k_pool", all_.k_pool, parameters_.pairs));
    ATTN_RETURN_IF_ERROR(add_pool("v", all_.v, "v_pool", all_.v_pool, 0));
    return add_queries();
  }

  const AppendParameters& parameters() const { return parameters_; }
  std::int64_t blocks() const { return blocks_; }

 private:
  Status read_slots() {
    if (all_.slot_mapping == nullptr) return wrong("slot_mapping must not be NULL");
    ATTN_RETURN_IF_ERROR(check_address("slot_mapping", all_.slot_mapping, {0, 8}));
    if (all_.pages < 1 || all_.page_size < 1 || all_.pages > kMostSlots / all_.page_size) {
      return wrong(
          fmt::format("the pools have {} pages of {} rows; they must have 1 to 2^31 - 1 "
                      "rows in all",
                      all_.pages, all_.page_size));
    }
    parameters_.slots = reinterpret_cast<const long long*>(all_.slot_mapping);
    parameters_.slot_count = static_cast<unsigned>(all_.pages * all_.page_size);
    parameters_.page_size = static_cast<unsigned>(all_.page_size);
    return {};
  }

  Status check_rotary() const {
    const attn_rotary& rotary = all_.rotary;
    if (rotary.cos == nullptr || rotary.sin == nullptr)
      return wrong("cos and sin must be given together");
    if (rotary.positions == nullptr) return wrong("cos is given without positions");
    if (rotary.positions_dtype != ATTN_DTYPE_I32 && rotary.positions_dtype != ATTN_DTYPE_I64) {
      return wrong(fmt::format("positions has dtype {}, but must have i32 or i64",
                               attn_dtype_name(rotary.positions_dtype)));
    }
    if (all_.k.data == nullptr && all_.q.data == nullptr)
      return wrong("cos is given without k or q to rotate");
    if (rotary.table_rows < 1 || rotary.table_rows > kMostSlots) {
      return wrong(
          fmt::format("cos and sin have {} rows; they must have 1 to 2^31 - 1", rotary.table_rows));
    }
    const auto most = [&](const attn_rows& rows) {
      return rows.data == nullptr ? rotary.rotary_dim : rows.width;
    };
    if (rotary.rotary_dim > 0 && rotary.rotary_dim % 2 == 0 &&
        rotary.rotary_dim <= std::min(most(all_.k), most(all_.q)))
      return {};
    return wrong(fmt::format("rotary_dim is {}; it must be even, and at most the width of k and q",
                             rotary.rotary_dim));
  }

  Status read_rotary() {
    const attn_rotary& rotary = all_.rotary;
    if (rotary.cos == nullptr && rotary.sin == nullptr) return {};
    ATTN_RETURN_IF_ERROR(check_rotary());
    ATTN_ASSIGN(table_type_, type_of("cos", rotary.dtype));
    ATTN_RETURN_IF_ERROR(check_address("cos", rotary.cos, table_type_));
    ATTN_RETURN_IF_ERROR(check_address("sin", rotary.sin, table_type_));
    const bool wide = rotary.positions_dtype == ATTN_DTYPE_I64;
    ATTN_RETURN_IF_ERROR(check_address("positions", rotary.positions, {0, wide ? 8 : 4}));
    parameters_.cos = rotary.cos;
    parameters_.sin = rotary.sin;
    parameters_.cos_row = bytes_of(rotary.cos_stride, rotary.table_rows, table_type_);
    parameters_.sin_row = bytes_of(rotary.sin_stride, rotary.table_rows, table_type_);
    parameters_.table_rows = static_cast<int>(rotary.table_rows);
    parameters_.table_type = table_type_.number;
    parameters_.pairs = static_cast<int>(rotary.rotary_dim / 2);
    parameters_.interleaved = rotary.interleaved != 0 ? 1 : 0;
    parameters_.positions = rotary.positions;
    parameters_.wide_positions = wide ? 1 : 0;
    return {};
  }

  Status add_pool(const char* name, const attn_rows& rows, const char* pool_name,
                  const attn_pool& pool, std::int64_t pairs) {
    if (rows.data == nullptr && pool.data == nullptr) return {};
    if (rows.data == nullptr) return wrong(fmt::format("{} is given without {}", pool_name, name));
    if (pool.data == nullptr) return wrong(fmt::format("{} is given without {}", name, pool_name));
    ATTN_ASSIGN(const ElementType type, type_of(pool_name, pool.dtype, Holds::pool));
    ATTN_RETURN_IF_ERROR(check_address(pool_name, pool.data, type));
    if (pool.descale != nullptr && type.bytes != 1) {
      return wrong(fmt::format("{} has dtype {} and a descale, which only pools of 8 bits have",
                               pool_name, attn_dtype_name(pool.dtype)));
    }
    AppendPart part{};
    part.to = pool.data;
    part.descale = pool.descale;
    part.to_page = bytes_of(pool.page_stride, all_.pages, type);
    part.to_row = bytes_of(pool.row_stride, all_.page_size, type);
    part.to_head = bytes_of(pool.head_stride, rows.heads, type);
    part.to_type = type.number;
    part.paged = 1;
    Vector vector;
    vector.fit(part.to, {part.to_page, part.to_row, part.to_head}, type);
    return add(name, rows, part, vector, pairs);
  }

  Status add_queries() {
    if (all_.q.data == nullptr && all_.q_out.data == nullptr) return {};
    if (all_.q.data == nullptr) return wrong("q_out is given without q");
    if (all_.q_out.data == nullptr) return wrong("q is given without q_out, which may be q itself");
    if (parameters_.cos == nullptr) return wrong("q is given without cos and sin");
    ATTN_ASSIGN(const ElementType type, check_rows("q_out", all_.q_out));
    ATTN_RETURN_IF_ERROR(check_same("q_out", all_.q_out, "q", all_.q));
    AppendPart part{};
    part.to = all_.q_out.data;
    part.to_row = bytes_of(all_.q_out.row_stride, all_.rows, type);
    part.to_head = bytes_of(all_.q_out.head_stride, all_.q_out.heads, type);
    part.to_type = type.number;
    Vector vector;
    vector.fit(part.to, {part.to_row, part.to_head}, type);
    return add("q", all_.q, part, vector, parameters_.pairs);
  }

  // `pairs` of elements of each head are rotated.
  Status add(const char* name, const attn_rows& rows, AppendPart part, Vector vector,
             std::int64_t pairs) {
    ATTN_ASSIGN(const ElementType type, check_rows(name, rows));
    part.from = rows.data;
    part.from_row = bytes_of(rows.row_stride, all_.rows, type);
    part.from_head = bytes_of(rows.head_stride, rows.heads, type);
    part.from_type = type.number;
    part.heads = static_cast<int>(rows.heads);
    const bool in_place = part.to == part.from;
    if (in_place && (part.to_type != part.from_type || part.to_row != part.from_row ||
                     part.to_head != part.from_head))
      return wrong(
          fmt::format("{} is written in place, but with another type or other strides", name));
    vector.fit(part.from, {part.from_row, part.from_head}, type);
    vector.divide(rows.width - 2 * pairs);
    if (pairs > 0) {
      vector.divide(pairs);
      vector.fit(parameters_.cos, {parameters_.cos_row}, table_type_);
      vector.fit(parameters_.sin, {parameters_.sin_row}, table_type_);
    }
    part.elements = vector.elements();
    part.rotated_units = static_cast<int>(pairs / part.elements);
    part.units = static_cast<int>((rows.width - pairs) / part.elements);
    const std::int64_t units = std::int64_t{part.heads} * part.units;
    part.rows_of_block = static_cast<int>(std::max<std::int64_t>(1, kUnitsOfBlock / units));
    part.first_block = static_cast<int>(blocks_);
    blocks_ += (all_.rows + part.rows_of_block - 1) / part.rows_of_block;
    parameters_.parts[parameters_.count++] = part;
    return {};
  }

  const attn_append_arguments& all_;
  ElementType table_type_;
  AppendParameters parameters_{};
  std::int64_t blocks_ = 0;
};

}  // namespace

ATTN_API attn_status attn_append(attn_runtime* runtime, const attn_append_arguments* arguments,
                                 void* stream, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{runtime, "the runtime"}, {arguments, "the arguments"}}));
    ATTN_ASSIGN(const attn_append_arguments read, read_sized(arguments));
    if (read.rows < 0 || read.rows > kMostRows) {
      return Status(ErrorCode::invalid_argument,
                    fmt::format("rows is {}; it must be 0 to 2^29", read.rows));
    }
    if (read.rows == 0) return {};
    Append append(read);
    ATTN_RETURN_IF_ERROR(append.read());
    return runtime->runtime->operations().append(append.parameters(), append.blocks(), stream);
  });
}

}  // namespace attn::api
