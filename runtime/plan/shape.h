// The sizes that a plan is for, and which smaller ones it serves too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn::plan {

enum class Dim : std::uint8_t { B, Hq, Hkv, Sq, Skv, Dqk, Dv };
inline constexpr std::array kDims = {Dim::B,   Dim::Hq,  Dim::Hkv, Dim::Sq,
                                     Dim::Skv, Dim::Dqk, Dim::Dv};
std::string_view to_string(Dim dim);
std::optional<Dim> parse_dim(std::string_view text);  // not "D": that is both Dqk and Dv

// Sizes by dimension, of some or all.
class Sizes {
 public:
  Sizes() { sizes_.fill(kNone); }
  Sizes(std::initializer_list<std::pair<Dim, std::int64_t>> sizes) : Sizes() {
    for (const auto& [dim, size] : sizes) set(dim, size);
  }

  bool has(Dim dim) const { return (*this)[dim] != kNone; }
  std::int64_t operator[](Dim dim) const { return sizes_[static_cast<std::size_t>(dim)]; }
  void set(Dim dim, std::int64_t size) { sizes_[static_cast<std::size_t>(dim)] = size; }

  static constexpr std::int64_t kNone = -1;  // what [] gives where there is none
  bool operator==(const Sizes&) const = default;

 private:
  std::array<std::int64_t, kDims.size()> sizes_;
};

// "B=3 Sq=1000": of these dimensions those that have a size.
std::string to_text(const Sizes& sizes, std::span<const Dim> dims = kDims);

// Whether `all` has every size that `some` has.
bool agree(const Sizes& some, const Sizes& all);

// The dimensions in which not all of these are the same.
std::vector<Dim> varying(std::span<const Sizes> sizes);

struct Shape {
  Sizes sizes;  // all of them
  // Of B, Sq and Skv, in this order, those of which the plan serves smaller sizes too: the spec
  // computes the same whatever the size is, and what the plan has too much is hidden by lengths:
  // rows by those of q, keys by those of kv, batches by lengths of 0.
  std::vector<Dim> padded;
  bool operator==(const Shape&) const = default;
};

}  // namespace attn::plan
