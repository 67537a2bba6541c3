// The work of a fake kernel: it computes every output byte from a digest of the inputs, so that a
// test can tell whether the right kernel ran on the right memory with the right scalars.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::standin {

enum class Role : std::uint8_t {
  input,      // device memory; the first bytes are read
  output,     // device memory; all of it is written
  scalar,     // a value, not an address
  untouched,  // device memory, neither read nor written
  mapped,     // device memory behind a tensor map; the first bytes are read
};

struct Operand {
  Role role = Role::input;
  std::int64_t uid = 0;  // for cuDNN; operands of kernels are in order
  std::int64_t bytes = 0;
};

struct Work {
  std::uint64_t salt = 0;  // kernels with different salts give different results
  std::int64_t workspace = 0;
  std::vector<Operand> operands;
};

inline constexpr std::size_t kMapBytes = 128;    // size of a tensor map
inline constexpr std::size_t kReadBytes = 64;    // maximum read of an input
inline constexpr std::size_t kScalarBytes = 16;  // maximum size of a scalar
using Value = std::array<std::byte, kScalarBytes>;

// Does the work. `places` are the addresses of the operands, in order; for scalars the addresses of
// their values.
void run(const Work& work, std::span<void* const> places);

// A serialized plan of the stand-in cuDNN; JSON, as in the real one. Parsing returns nothing for
// other text.
struct PlanText {
  Work work;
  std::int64_t version = 0;  // cudnnGetVersion()
  std::int64_t sm = 0;
};
std::string to_json(const PlanText& plan);
std::optional<PlanText> parse_plan(std::string_view json);

// Kernels of a module by name, and the module image.
using Kernels = std::map<std::string, Work>;
std::string to_json(const Kernels& kernels);
std::optional<Kernels> parse_kernels(std::string_view json);

// Hashes bytes into a 64-bit state.
std::uint64_t mixed(std::uint64_t state, std::span<const std::byte> bytes);

}  // namespace attn::standin
