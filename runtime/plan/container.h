// The outer structure of a plan file: header, section table, sections (docs/plan-format.md).
// plan_file.cpp reads and writes the contents of sections.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::plan {

inline constexpr std::uint32_t kFormatVersion = 1;  // of the files that are written
inline constexpr std::size_t kMaxSections = 1024;
inline constexpr std::size_t kMaxManifestBytes = std::size_t{16} << 20;  // all manifests
inline constexpr std::size_t kMaxManifestValues = std::size_t{1}
                                                  << 17;              // JSON values of one manifest
inline constexpr std::size_t kMaxRanksValues = std::size_t{1} << 22;  // JSON values of the ranks
inline constexpr std::size_t kMaxPlanBytes = std::size_t{64} << 20;   // one step, unpacked
inline constexpr std::size_t kMaxAllPlanBytes = std::size_t{256} << 20;  // all steps, unpacked
inline constexpr std::size_t kMaxFileBytes = std::size_t{512} << 20;
inline constexpr std::size_t kHeaderBytes = 64;

// Limit on the unpacked size of all packed sections, so that a small file cannot claim much memory.
// Kernels compress to about a fifth.
inline constexpr std::size_t kAlwaysUnpacked = std::size_t{32} << 20;
inline constexpr std::size_t kMostUnpackedPerByte = 64;
std::size_t most_unpacked(std::size_t file_bytes);

// Kinds of sections. A number is never reused for another meaning.
inline constexpr std::uint32_t kManifestSection = 1;  // JSON text, one for each plan
inline constexpr std::uint32_t kCudnnPlanSection =
    2;  // one for each cuDNN step of each plan, in order
inline constexpr std::uint32_t kKernelSection =
    3;  // one for each other step of each plan, in order, then the check's
inline constexpr std::uint32_t kRanksSection = 4;  // JSON text: what ranks do with the plans
inline constexpr std::uint32_t kRankKernelsSection =
    5;  // the cubin of what moves rows between ranks, one if there is one of kind 4

struct Section {
  std::uint32_t kind = 0;
  bool packed = false;    // the stored bytes are a zstd frame
  bool optional = false;  // readers that do not know the kind skip it
  std::uint64_t unpacked_bytes = 0;
  std::string_view stored;
};

// A section to write, stored as is or compressed with zstd at the format's level.
struct SectionSource {
  std::uint32_t kind = 0;
  bool packed = false;
  bool optional = false;
  std::string_view bytes;
};

std::string write_container(const std::vector<SectionSource>& sections);

// Whether these bytes begin like a plan file of any version, also one from before the first
// release.
bool begins_plan(std::string_view bytes);

// The file length announced by this header of kHeaderBytes. Lets readers read no more than that,
// and nothing of a file that is not a plan. Errors: those of read_container().
Result<std::uint64_t> announced_bytes(std::string_view header);

// Reads the sections, in file order, and verifies checksums. They are views into `bytes`. Errors:
// plan_foreign, plan_newer, plan_truncated, plan_damaged.
Result<std::vector<Section>> read_container(std::string_view bytes);

// Unpacks a section of at most `limit` bytes. Errors: plan_damaged.
Result<std::string> unpack(const Section& section, std::size_t limit);

// An error plan_damaged.
Error damaged(std::string message);

}  // namespace attn::plan
