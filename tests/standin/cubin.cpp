#include "tests/standin/cubin.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <span>

namespace attn::standin {
namespace {

constexpr std::string_view kInfo = ".nv.info.";
// An attribute consists of a form, a kind, and 16 bits: its value, or in form 4 the size of the
// data that follows. `cuobjdump -elf` prints these names.
constexpr std::uint8_t kFormSized = 4;
constexpr std::uint8_t kParameterInfo = 0x17;  // EIATTR_KPARAM_INFO

template <typename T>
T read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// The data: 4 bytes of index, the parameter's number and offset, and its size from bit 18 on.
void add_parameter(const char* value, std::vector<std::size_t>& sizes) {
  const auto number = read<std::uint16_t>(value + 4);
  if (sizes.size() <= number) sizes.resize(number + 1U);
  sizes[number] = read<std::uint32_t>(value + 8) >> 18;
}

std::vector<std::size_t> parameters_in(std::span<const char> info) {
  std::vector<std::size_t> sizes;
  for (std::size_t at = 0; at + 4 <= info.size();) {
    const auto form = static_cast<std::uint8_t>(info[at]);
    const auto kind = static_cast<std::uint8_t>(info[at + 1]);
    const auto bytes = read<std::uint16_t>(&info[at + 2]);
    at += 4;
    if (form != kFormSized) continue;
    if (kind == kParameterInfo) add_parameter(&info[at], sizes);
    at += bytes;
  }
  return sizes;
}

}  // namespace

bool is_cubin(std::string_view image) {
  return image.starts_with(std::string_view(ELFMAG, SELFMAG));
}

Parameters parameters_of_cubin(const char* image) {
  const auto header = read<Elf64_Ehdr>(image);
  const auto section = [&](std::size_t i) {
    return read<Elf64_Shdr>(image + header.e_shoff + i * header.e_shentsize);
  };
  const char* names = image + section(header.e_shstrndx).sh_offset;
  Parameters parameters;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr entry = section(i);
    const std::string_view name = names + entry.sh_name;
    if (!name.starts_with(kInfo)) continue;
    parameters.emplace(name.substr(kInfo.size()),
                       parameters_in({image + entry.sh_offset, entry.sh_size}));
  }
  return parameters;
}

}  // namespace attn::standin
