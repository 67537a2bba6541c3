#include "runtime/ranks/places.h"

namespace attn::ranks {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool agree(std::int64_t size, std::int64_t x, std::int64_t y) { return size == 1 || x == y; }

}  // namespace

std::int64_t Place::bytes() const { return elements() * static_cast<std::int64_t>(size_of(dtype)); }

Place dense(Place place) {
  place.strides.head = place.width;
  place.strides.row = place.heads.size() * place.width;
  place.strides.batch = place.rows() * place.strides.row;
  return place;
}

Place place_of(const plan::TensorInfo& tensor, Address at, Interval heads, Intervals indices) {
  constexpr std::size_t kWithWidth = 4;
  const bool has_width = tensor.dims.size() == kWithWidth;
  return {at,
          tensor.dtype,
          tensor.dims[0],
          heads,
          std::move(indices),
          has_width ? tensor.dims.back() : 1,
          {tensor.strides[0], tensor.strides[1], tensor.strides[2]}};
}

std::int64_t position(const Intervals& set, std::int64_t number) {
  std::int64_t before = 0;
  for (const Interval& each : set) {
    if (each.begin >= number) break;
    before += std::min(each.end, number) - each.begin;
  }
  return before;
}

std::optional<std::int64_t> run_of(const Intervals& set, const Intervals& some) {
  if (some.empty() || !contains(set, some)) return std::nullopt;
  const std::int64_t begin = position(set, some.front().begin);
  if (position(set, some.back().end) - begin != count(some)) return std::nullopt;
  return begin;
}

std::optional<Place> view(const Place& place, Interval heads, const Intervals& indices) {
  if (heads.begin < place.heads.begin || heads.end > place.heads.end) return std::nullopt;
  const auto row = run_of(place.indices, indices);
  if (!row) return std::nullopt;
  const std::int64_t elements =
      *row * place.strides.row + (heads.begin - place.heads.begin) * place.strides.head;
  Place part = place;
  part.at = place.at.plus(elements * static_cast<std::int64_t>(size_of(place.dtype)));
  part.heads = heads;
  part.indices = indices;
  return part;
}

bool same_layout(const Place& x, const Place& y) {
  return x.dtype == y.dtype && x.batches == y.batches && x.width == y.width && x.heads == y.heads &&
         x.rows() == y.rows() && agree(x.batches, x.strides.batch, y.strides.batch) &&
         agree(x.heads.size(), x.strides.head, y.strides.head) &&
         agree(x.rows(), x.strides.row, y.strides.row);
}

bool is_dense(const Place& place) { return same_layout(place, dense(place)); }

Address Layout::add(std::int64_t bytes) {
  const std::int64_t offset = bytes_;
  bytes_ = aligned(bytes_ + bytes);
  return {in_, 0, offset};
}

Address Table::add(const std::vector<std::int32_t>& words) {
  constexpr auto kWord = static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::int64_t offset = aligned(static_cast<std::int64_t>(words_.size()) * kWord);
  words_.resize(static_cast<std::size_t>(offset / kWord));
  words_.insert(words_.end(), words.begin(), words.end());
  return {Address::In::table, 0, offset};
}

}  // namespace attn::ranks
