// Interprets bytes as a sequence of decisions; used by the generators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace attn::fuzz {

// Past the end of the bytes every decision is 0, the simplest one. Limits are at most 256.
class Decisions {
 public:
  explicit Decisions(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  unsigned below(unsigned limit) { return byte() % limit; }
  // The same, for limits up to 2^16.
  std::size_t index(std::size_t limit) {
    const unsigned high = byte();
    return (high * 256 + byte()) % limit;
  }
  bool one_in(unsigned count) { return below(count) == count - 1; }
  std::string pick(std::initializer_list<std::string_view> words) {
    return std::string(words.begin()[below(static_cast<unsigned>(words.size()))]);
  }

 private:
  unsigned byte() { return at_ < bytes_.size() ? bytes_[at_++] : 0; }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

}  // namespace attn::fuzz
