#include "tools/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace attn::tools {
namespace {

// Attributes of kernels, in the section .nv.info: a form, a number, and the size of what follows.
constexpr std::uint8_t kSized = 0x04;
constexpr std::uint8_t kFrameSize = 0x11, kRegisters = 0x2f;  // of {symbol, value}

// Limits that no image reaches: the work for any bytes is bounded.
constexpr std::uint64_t kMostSections = 1024, kMostAttributes = 4096;
constexpr std::size_t kMostName = 1024;

// The value at a place; nothing past the end.
template <typename Value>
std::optional<Value> read(std::string_view bytes, std::uint64_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(&value, bytes.data() + at, sizeof(Value));
  return value;
}

std::string_view part_of(std::string_view bytes, std::uint64_t at, std::uint64_t size) {
  if (at > bytes.size()) return {};
  return bytes.substr(at, size);
}

// The text at a place, up to the zero that ends it.
std::string_view text_at(std::string_view strings, std::uint64_t at) {
  const std::string_view text = part_of(strings, at, kMostName);
  return text.substr(0, text.find('\0'));
}

class Elf {
 public:
  explicit Elf(std::string_view bytes) : bytes_(bytes) {
    const auto header = read<Elf64_Ehdr>(bytes, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64) {
      return;
    }
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(header->e_shnum, kMostSections); ++i) {
      const auto section = read<Elf64_Shdr>(bytes, header->e_shoff + i * sizeof(Elf64_Shdr));
      if (section) sections_.push_back(*section);
    }
    if (header->e_shstrndx < sections_.size()) names_ = content(sections_[header->e_shstrndx]);
  }

  // Content of the first section of this name.
  std::string_view section(std::string_view name) const {
    for (const Elf64_Shdr& each : sections_) {
      if (text_at(names_, each.sh_name) == name) return content(each);
    }
    return {};
  }

  std::string_view symbol(std::uint32_t number) const {
    for (const Elf64_Shdr& each : sections_) {
      if (each.sh_type != SHT_SYMTAB || each.sh_link >= sections_.size()) continue;
      const auto found = read<Elf64_Sym>(content(each), std::uint64_t{number} * sizeof(Elf64_Sym));
      if (found) return text_at(content(sections_[each.sh_link]), found->st_name);
    }
    return {};
  }

 private:
  std::string_view content(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS) return {};
    return part_of(bytes_, section.sh_offset, section.sh_size);
  }

  std::string_view bytes_, names_;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace

std::map<std::string, KernelResources> resources_of(std::string_view cubin) {
  const Elf elf(cubin);
  std::map<std::string, KernelResources> all;
  const std::string_view info = elf.section(".nv.info");
  std::uint64_t attributes = 0;
  for (std::uint64_t at = 0; at + 4 <= info.size() && attributes < kMostAttributes; ++attributes) {
    const auto form = static_cast<std::uint8_t>(info[at]);
    const auto attribute = static_cast<std::uint8_t>(info[at + 1]);
    const std::uint16_t size = *read<std::uint16_t>(info, at + 2);
    const auto symbol = read<std::uint32_t>(info, at + 4);
    const auto value = read<std::uint32_t>(info, at + 8);
    at += 4 + (form == kSized ? size : 0);
    if (form != kSized || !symbol || !value) continue;
    const std::string_view name = elf.symbol(*symbol);
    if (name.empty()) continue;
    if (attribute == kRegisters) all[std::string(name)].registers = *value;
    if (attribute == kFrameSize) all[std::string(name)].stack_bytes = *value;
  }
  return all;
}

}  // namespace attn::tools
