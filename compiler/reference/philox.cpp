#include "compiler/reference/philox.h"

namespace attn::reference {
namespace {

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

Counter round(const Counter& counter, const Key& key) {
  const std::uint64_t x = std::uint64_t{0xD2511F53} * counter[0];
  const std::uint64_t y = std::uint64_t{0xCD9E8D57} * counter[2];
  return {high(y) ^ counter[1] ^ key[0], low(y), high(x) ^ counter[3] ^ key[1], low(x)};
}

}  // namespace

Counter philox(Counter counter, Key key) {
  for (int i = 0; i < 10; ++i) {
    counter = round(counter, key);
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

bool is_kept(std::uint64_t seed, std::uint64_t offset, std::uint64_t index, double probability) {
  const std::uint64_t block = index / 4;
  const Counter bits =
      philox({low(block), high(block), low(offset), high(offset)}, {low(seed), high(seed)});
  return static_cast<double>(bits[index % 4]) >= probability * 0x1p32;
}

}  // namespace attn::reference
