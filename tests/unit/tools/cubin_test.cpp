#include "tools/cubin.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace attn::tools {
namespace {

template <typename Value>
void append(std::string& bytes, const Value& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(Value));
}

// A cubin with two kernels, as NVRTC writes them: .nv.info names them by their symbols.
std::string cubin() {
  std::string bytes(sizeof(Elf64_Ehdr), '\0');
  std::array<Elf64_Shdr, 5> sections{};
  const std::string names{"\0.shstrtab\0.strtab\0.symtab\0.nv.info\0", 36};
  const std::string kernels{"\0attn_one\0attn_two\0", 19};
  const auto add = [&bytes, &sections](std::size_t section, Elf64_Word name, Elf64_Word type,
                                       const std::string& content) {
    sections[section].sh_name = name;
    sections[section].sh_type = type;
    sections[section].sh_offset = bytes.size();
    sections[section].sh_size = content.size();
    bytes += content;
  };
  add(1, 1, SHT_STRTAB, names);
  add(2, 11, SHT_STRTAB, kernels);
  std::string symbols;
  for (const Elf64_Word name : {0U, 1U, 10U}) {
    Elf64_Sym symbol{};
    symbol.st_name = name;
    append(symbols, symbol);
  }
  add(3, 19, SHT_SYMTAB, symbols);
  sections[3].sh_link = 2;
  std::string info;
  const auto attribute = [&info](std::uint8_t number, std::uint32_t symbol, std::uint32_t value) {
    info += std::string{4, static_cast<char>(number), 8, 0};
    append(info, symbol);
    append(info, value);
  };
  attribute(0x2f, 1, 168);
  info += std::string{3, 0x1b, 1, 0};  // one without a size of its own
  attribute(0x11, 1, 0);
  attribute(0x2f, 2, 40);
  attribute(0x11, 2, 16);
  add(4, 27, 0x70000000, info);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = bytes.size();
  header.e_shnum = sections.size();
  header.e_shstrndx = 1;
  for (const Elf64_Shdr& section : sections) append(bytes, section);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

TEST(Cubin, HasTheRegistersOfEachKernel) {
  auto resources = resources_of(cubin());
  ASSERT_EQ(resources.size(), 2U);
  EXPECT_EQ(resources["attn_one"].registers, 168);
  EXPECT_EQ(resources["attn_one"].stack_bytes, 0);
  EXPECT_EQ(resources["attn_two"].registers, 40);
  EXPECT_EQ(resources["attn_two"].stack_bytes, 16);
}

TEST(Cubin, AnyBytesMayBeRead) {
  const std::string whole = cubin();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_LE(resources_of(whole.substr(0, size)).size(), 2U);
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char byte : {'\0', '\x7f', '\xff'}) {
      std::string damaged = whole;
      damaged[i] = byte;
      EXPECT_LE(resources_of(damaged).size(), 2U);
    }
  }
}

}  // namespace
}  // namespace attn::tools
