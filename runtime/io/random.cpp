#include "runtime/io/random.h"

#include <cmath>
#include <numbers>

#include "runtime/base/hash.h"

namespace attn::io {
namespace {

std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31);
}

double unit(std::uint64_t numerator) { return static_cast<double>(numerator) * 0x1p-53; }

}  // namespace

std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15U;
  return mix(mix(seed) +
             kGamma *
                 (index + 1));  // mix the seed, so that similar seeds do not give shifted streams
}

std::vector<double> normal_values(std::uint64_t seed, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const double u1 = unit((random_word(seed, i) >> 11) + 1);
    const double u2 = unit(random_word(seed, i + 1) >> 11);
    const double radius = std::sqrt(-2 * std::log(u1));
    const double angle = 2 * std::numbers::pi * u2;
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

std::uint64_t seed_of(std::string_view name) { return hash128(name).low; }

}  // namespace attn::io
