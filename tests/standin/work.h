// What a made-up kernel computes: every byte of its outputs from a digest of its inputs, so that a
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
  input,      // device memory, of which the first bytes are read
  output,     // device memory, all of which is written
  scalar,     // a value, not an address
  untouched,  // device memory, neither read nor written
};

struct Operand {
  Role role = Role::input;
  std::int64_t uid = 0;  // of cuDNN's; kernels have theirs in order
  std::int64_t bytes = 0;
};

struct Work {
  std::uint64_t salt = 0;  // two kernels that differ here compute differently
  std::int64_t workspace = 0;
  std::vector<Operand> operands;
};

inline constexpr std::size_t kReadBytes = 64;    // of an input, at most
inline constexpr std::size_t kScalarBytes = 16;  // at most
using Value = std::array<std::byte, kScalarBytes>;

// The work on given memory. `places` are those of the operands, in order: addresses, or of the
// values of scalars.
void run(const Work& work, std::span<void* const> places);

// A plan of the made-up cuDNN, which is JSON as a real one is. Parsing gives nothing for a text of
// another form.
struct PlanText {
  Work work;
  std::int64_t version = 0;  // cudnnGetVersion()
  std::int64_t sm = 0;
};
std::string to_json(const PlanText& plan);
std::optional<PlanText> parse_plan(std::string_view json);

// The image of a module with these kernels, by name.
using Kernels = std::map<std::string, Work>;
std::string to_json(const Kernels& kernels);
std::optional<Kernels> parse_kernels(std::string_view json);

// 64 bits of anything, well mixed.
std::uint64_t mixed(std::uint64_t state, std::span<const std::byte> bytes);

}  // namespace attn::standin
