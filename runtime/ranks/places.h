// Where tensors of a rank are in device memory: those that callers bind, messages, and the inputs
// and outputs of parts. Values, without a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/plan/program.h"
#include "runtime/ranks/intervals.h"

namespace attn::ranks {

// An address that is known once memory is allocated and tensors are bound.
struct Address {
  enum class In : std::uint8_t { nothing, memory, table, home };

  In in = In::nothing;
  std::size_t tensor = 0;   // of `home`: which of the tensors that the caller binds
  std::int64_t offset = 0;  // in bytes

  explicit operator bool() const { return in != In::nothing; }
  Address plus(std::int64_t bytes) const { return {in, tensor, offset + bytes}; }
  bool operator==(const Address&) const = default;
};

// Strides in elements; the width is contiguous.
struct Strides {
  std::int64_t batch = 0, head = 0, row = 0;

  bool operator==(const Strides&) const = default;
};

// Some rows or keys of some heads of a tensor: [B, heads, indices, width], or [B, heads, indices]
// of statistics, whose width is 1.
struct Place {
  Address at{};
  DType dtype = DType::f32;
  std::int64_t batches = 1;
  Interval heads;  // query heads of rows, key heads of keys
  Intervals indices;
  std::int64_t width = 1;
  Strides strides{};

  std::int64_t rows() const { return count(indices); }
  std::int64_t elements() const { return batches * heads.size() * rows() * width; }
  std::int64_t bytes() const;  // if it is dense
  bool operator==(const Place&) const = default;
};

// The dense place of a message: [B, indices, heads, width].
Place dense(Place place);
// The place of a tensor of a plan or of a caller, with logical dims.
Place place_of(const plan::TensorInfo& tensor, Address at, Interval heads, Intervals indices);

// How many of the set are below `number`.
std::int64_t position(const Intervals& set, std::int64_t number);
// Where `some` begin in the set, if they are adjacent there: no others of the set between them.
std::optional<std::int64_t> run_of(const Intervals& set, const Intervals& some);

// A part of a place that has the same strides; nothing if the place lacks something of it, or has
// others between.
std::optional<Place> view(const Place& place, Interval heads, const Intervals& indices);

// Whether strides agree, except those of dimensions of size 1.
bool same_layout(const Place& x, const Place& y);
// Whether messages could be there.
bool is_dense(const Place& place);

// Memory of one allocation, at multiples of 256 bytes.
class Layout {
 public:
  explicit Layout(Address::In in) : in_(in) {}

  Address add(std::int64_t bytes);
  std::int64_t bytes() const { return bytes_; }

 private:
  Address::In in_;
  std::int64_t bytes_ = 0;
};

// Words that are uploaded once.
class Table {
 public:
  Address add(const std::vector<std::int32_t>& words);
  const std::vector<std::int32_t>& words() const { return words_; }

 private:
  std::vector<std::int32_t> words_;
};

}  // namespace attn::ranks
