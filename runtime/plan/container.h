// The outer form of a plan file: header, section table, sections (docs/plan-format.md). What the
// sections mean is plan_file.cpp's business.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::plan {

inline constexpr std::uint32_t kFormatVersion = 6;  // the newest that is read and written
inline constexpr std::size_t kMaxSections = 1024;
inline constexpr std::size_t kMaxManifestBytes = std::size_t{16} << 20;  // of all manifests
inline constexpr std::size_t kMaxManifestValues = std::size_t{1} << 17;  // of one, as JSON
inline constexpr std::size_t kMaxPlanBytes = std::size_t{64} << 20;      // of one step, unpacked
inline constexpr std::size_t kMaxAllPlanBytes = std::size_t{256} << 20;  // of all steps, unpacked
inline constexpr std::size_t kMaxFileBytes = std::size_t{512} << 20;
inline constexpr std::size_t kHeaderBytes = 64;

// What the packed sections of a file may unpack to together: a small file cannot ask for much
// memory. Kernels pack to a fifth or so.
inline constexpr std::size_t kAlwaysUnpacked = std::size_t{32} << 20;
inline constexpr std::size_t kMostUnpackedPerByte = 64;
std::size_t most_unpacked(std::size_t file_bytes);

// Kinds of sections. A number is never given a second meaning.
inline constexpr std::uint32_t kManifestSection = 1;  // JSON text, one for each plan
inline constexpr std::uint32_t kCudnnPlanSection =
    2;  // one for each cuDNN step of each plan, in order
inline constexpr std::uint32_t kKernelSection =
    3;  // one for each derive step of each plan, in order

struct Section {
  std::uint32_t kind = 0;
  bool packed = false;    // the stored bytes are a zstd frame
  bool optional = false;  // a reader that does not know the kind may leave it out
  std::uint64_t unpacked_bytes = 0;
  std::string_view stored;
};

// A section as it is, or packed by zstd at the format's level.
struct SectionSource {
  std::uint32_t kind = 0;
  bool packed = false;
  bool optional = false;
  std::string_view bytes;
};

std::string write_container(std::uint32_t version, const std::vector<SectionSource>& sections);

// Whether a file that begins with these bytes was written to be a plan, of whatever version.
bool begins_plan(std::string_view bytes);

// The length of the file that begins with this header of kHeaderBytes: so that no more is read of a
// file than it says it has, and nothing of one that is no plan. Errors: plan_foreign, plan_newer,
// plan_truncated, plan_damaged, as read_container().
Result<std::uint64_t> announced_bytes(std::string_view header);

struct Container {
  std::uint32_t version = 0;
  std::vector<Section> sections;  // in the order of the file, views into its bytes
};

// Checksums are verified. Errors: plan_foreign, plan_newer, plan_truncated, plan_damaged.
Result<Container> read_container(std::string_view bytes);

// The section's bytes, at most `limit` of them. Errors: plan_damaged.
Result<std::string> unpack(const Section& section, std::size_t limit);

}  // namespace attn::plan
