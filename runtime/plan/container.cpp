#include "runtime/plan/container.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace attn::plan {
namespace {

// The first byte is not text; the last ones change if a transfer rewrites line endings.
constexpr std::string_view kMagic(
    "\x89"
    "ATP\r\n\x1a\n",
    8);
// The magic of all files from before the first release.
constexpr std::string_view kDevelopmentMagic(
    "\x89"
    "ATN\r\n\x1a\n",
    8);
constexpr std::size_t kHeaderSummedBytes = 48;
constexpr std::size_t kEntryBytes = 64;
constexpr std::uint32_t kPackedFlag = 1;
constexpr std::uint32_t kOptionalFlag = 2;
constexpr int kLevel = 19;

// Little-endian on every machine.
template <typename Unsigned>
void put(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void put(std::string& out, const Hash128& hash) {
  put(out, hash.high);
  put(out, hash.low);
}

// Requires offset + sizeof(Unsigned) <= bytes.size().
template <typename Unsigned>
Unsigned get(std::string_view bytes, std::size_t offset) {
  Unsigned value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    value |= static_cast<Unsigned>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

Hash128 get_hash(std::string_view bytes, std::size_t offset) {
  return {get<std::uint64_t>(bytes, offset), get<std::uint64_t>(bytes, offset + 8)};
}

std::string pack(std::string_view bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kLevel);
  ATTN_CHECK(!ZSTD_isError(size), "zstd must fit its own bound");
  packed.resize(size);
  return packed;
}

Error newer(std::string message) {
  return {ErrorCode::plan_newer, std::move(message), {"a newer attnc can read it"}};
}

struct Header {
  std::uint32_t sections = 0;
  Hash128 table_hash;
};

Error of_development() {
  return {ErrorCode::plan_foreign,
          "the plan file is of a development version of attnc, from before the first release",
          {"compile the spec again: no release reads such a file"}};
}

Status check_magic(std::string_view bytes) {
  const std::string_view start = bytes.substr(0, kMagic.size());
  if (start != kMagic.substr(0, start.size())) {
    if (start == kDevelopmentMagic.substr(0, start.size())) return of_development();
    return {ErrorCode::plan_foreign, "the file is not an attnc plan"};
  }
  if (bytes.size() < kHeaderBytes) {
    return {ErrorCode::plan_truncated,
            fmt::format("the plan file ends after {} bytes, inside its header", bytes.size())};
  }
  return {};
}

Status check_length(std::string_view bytes, std::uint64_t expected) {
  if (bytes.size() < expected) {
    return {ErrorCode::plan_truncated,
            fmt::format("the plan file ends after {} of {} bytes", bytes.size(), expected)};
  }
  if (bytes.size() > expected) {
    return damaged(
        fmt::format("the plan file has {} bytes after its end", bytes.size() - expected));
  }
  return {};
}

// Checks magic, checksum and version of the header.
Status check_version(std::string_view bytes) {
  ATTN_RETURN_IF_ERROR(check_magic(bytes));
  if (hash128(bytes.substr(0, kHeaderSummedBytes)) != get_hash(bytes, kHeaderSummedBytes)) {
    return damaged("the plan file's header does not match its checksum");
  }
  const auto version = get<std::uint32_t>(bytes, 8);
  if (version > kFormatVersion) {
    return newer(fmt::format("the plan file has format version {}, but this attnc reads up to {}",
                             version, kFormatVersion));
  }
  return version == 0 ? damaged("the plan file has format version 0") : Status();
}

Result<Header> read_header(std::string_view bytes) {
  ATTN_RETURN_IF_ERROR(check_version(bytes));
  ATTN_RETURN_IF_ERROR(check_length(bytes, get<std::uint64_t>(bytes, 16)));
  if (get<std::uint64_t>(bytes, 24) != 0)
    return damaged("a reserved field of the plan file's header is not zero");
  const auto sections = get<std::uint32_t>(bytes, 12);
  if (sections > kMaxSections || sections > (bytes.size() - kHeaderBytes) / kEntryBytes) {
    return damaged(
        fmt::format("the plan file's header gives {} sections, which is too many", sections));
  }
  return Header{sections, get_hash(bytes, 32)};
}

// `position` is where the section must start, and is advanced to where the next one must.
Result<Section> read_entry(std::string_view bytes, std::string_view entry, std::size_t& position) {
  Section section;
  section.kind = get<std::uint32_t>(entry, 0);
  const auto flags = get<std::uint32_t>(entry, 4);
  const auto offset = get<std::uint64_t>(entry, 8);
  const auto length = get<std::uint64_t>(entry, 16);
  section.unpacked_bytes = get<std::uint64_t>(entry, 24);
  if ((flags & ~(kPackedFlag | kOptionalFlag)) != 0) {
    return newer(fmt::format("a section of the plan file has unknown flags {:#x}", flags));
  }
  section.packed = (flags & kPackedFlag) != 0;
  section.optional = (flags & kOptionalFlag) != 0;
  if (offset != position || length > bytes.size() - position) {
    return damaged("a section of the plan file has an invalid offset or length");
  }
  if (get<std::uint64_t>(entry, 32) != 0 || get<std::uint64_t>(entry, 40) != 0 ||
      (!section.packed && section.unpacked_bytes != length)) {
    return damaged("a section of the plan file has inconsistent fields");
  }
  section.stored = bytes.substr(position, length);
  position += length;
  if (hash128(section.stored) != get_hash(entry, 48)) {
    return damaged("a section of the plan file does not match its checksum");
  }
  return section;
}

}  // namespace

Error damaged(std::string message) { return {ErrorCode::plan_damaged, std::move(message)}; }

std::string write_container(const std::vector<SectionSource>& sections) {
  std::string table;
  std::string body;
  const std::size_t start = kHeaderBytes + kEntryBytes * sections.size();
  for (const SectionSource& section : sections) {
    const std::string stored = section.packed ? pack(section.bytes) : std::string(section.bytes);
    put(table, section.kind);
    put(table, (section.packed ? kPackedFlag : 0) | (section.optional ? kOptionalFlag : 0));
    put(table, std::uint64_t{start + body.size()});
    put(table, std::uint64_t{stored.size()});
    put(table, std::uint64_t{section.bytes.size()});
    put(table, std::uint64_t{0});
    put(table, std::uint64_t{0});
    put(table, hash128(stored));
    body += stored;
  }
  std::string out(kMagic);
  put(out, kFormatVersion);
  put(out, static_cast<std::uint32_t>(sections.size()));
  put(out, std::uint64_t{start + body.size()});
  put(out, std::uint64_t{0});
  put(out, hash128(table));
  put(out, hash128(out));
  return out + table + body;
}

bool begins_plan(std::string_view bytes) {
  return bytes.starts_with(kMagic) || bytes.starts_with(kDevelopmentMagic);
}

Result<std::uint64_t> announced_bytes(std::string_view header) {
  ATTN_RETURN_IF_ERROR(check_version(header));
  return get<std::uint64_t>(header, 16);
}

std::size_t most_unpacked(std::size_t file_bytes) {
  return std::clamp(std::min(file_bytes, kMaxFileBytes) * kMostUnpackedPerByte, kAlwaysUnpacked,
                    kMaxAllPlanBytes);
}

Result<std::vector<Section>> read_container(std::string_view bytes) {
  ATTN_ASSIGN(const Header header, read_header(bytes));
  const std::string_view table = bytes.substr(kHeaderBytes, kEntryBytes * header.sections);
  if (hash128(table) != header.table_hash) {
    return damaged("the plan file's section table does not match its checksum");
  }
  std::vector<Section> sections;
  std::size_t position = kHeaderBytes + table.size();
  for (std::size_t i = 0; i < header.sections; ++i) {
    ATTN_ASSIGN(Section section,
                read_entry(bytes, table.substr(i * kEntryBytes, kEntryBytes), position));
    sections.push_back(section);
  }
  if (position != bytes.size()) return damaged("the plan file has bytes outside all sections");
  return sections;
}

Result<std::string> unpack(const Section& section, std::size_t limit) {
  if (section.unpacked_bytes > limit) {
    return damaged(
        fmt::format("a section of the plan file gives {} bytes, more than the {} that "
                    "are allowed",
                    section.unpacked_bytes, limit));
  }
  if (!section.packed) return std::string(section.stored);
  // Check the size in the zstd frame before allocating memory.
  if (ZSTD_getFrameContentSize(section.stored.data(), section.stored.size()) !=
      section.unpacked_bytes) {
    return damaged("the size of a packed section of the plan file does not match its entry");
  }
  std::string bytes(section.unpacked_bytes, '\0');
  const std::size_t size =
      ZSTD_decompress(bytes.data(), bytes.size(), section.stored.data(), section.stored.size());
  if (ZSTD_isError(size) || size != bytes.size()) {
    return damaged("a packed section of the plan file cannot be unpacked");
  }
  return bytes;
}

}  // namespace attn::plan
