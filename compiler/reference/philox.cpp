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

Counter philox(Counter counter, Key key, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    counter = round(counter, key);
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

Random::Random(std::uint64_t seed, std::uint64_t offset) {
  const Counter words = philox({low(offset), high(offset), 0, 0}, {low(seed), high(seed)});
  key_ = {words[0], words[1]};
}

std::int64_t Random::number(const Weight& weight) const {
  const auto [b, h, q, kv] = weight;
  const Counter words = philox({kv / 32 * 4 + kv % 8 / 2, q, h, b}, key_);
  return words[kv / 8 % 4] >> (kv % 2 * 16) & 0x7fff;
}

bool Random::keeps(const Weight& weight, const ir::Dropout& dropout) const {
  return number(weight) >= dropout.dropped();
}

}  // namespace attn::reference
