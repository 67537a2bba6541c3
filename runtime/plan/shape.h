// The sizes that a plan is for, and which smaller sizes it also serves.
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
std::optional<Dim> parse_dim(std::string_view text);  // not "D", which could be Dqk or Dv

// Sizes of some or all dimensions.
class Sizes {
 public:
  Sizes() { sizes_.fill(kNone); }
  Sizes(std::initializer_list<std::pair<Dim, std::int64_t>> sizes) : Sizes() {
    for (const auto& [dim, size] : sizes) set(dim, size);
  }

  bool has(Dim dim) const { return (*this)[dim] != kNone; }
  std::int64_t operator[](Dim dim) const { return sizes_[static_cast<std::size_t>(dim)]; }
  std::int64_t& operator[](Dim dim) { return sizes_[static_cast<std::size_t>(dim)]; }
  void set(Dim dim, std::int64_t size) { sizes_[static_cast<std::size_t>(dim)] = size; }

  static constexpr std::int64_t kNone = -1;  // value of [] for dimensions without a size
  bool operator==(const Sizes&) const = default;

 private:
  std::array<std::int64_t, kDims.size()> sizes_;
};

// "B=3 Sq=1000": those of `dims` that have a size.
std::string to_text(const Sizes& sizes, std::span<const Dim> dims = kDims);

// Whether `all` contains every size of `some`.
bool agree(const Sizes& some, const Sizes& all);

// The dimensions in which the sizes differ.
std::vector<Dim> varying(std::span<const Sizes> sizes);

struct Shape {
  Sizes sizes;  // all of them
  // The dimensions of B, Sq and Skv, in this order, for which the plan also serves smaller sizes:
  // the spec does not depend on that size, and lengths mask the padding: rows by lengths of q, keys
  // by lengths of kv, batches by lengths of 0.
  std::vector<Dim> padded;
  bool operator==(const Shape&) const = default;
};

}  // namespace attn::plan
