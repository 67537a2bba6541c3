#include "runtime/plan/kernel_step_validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "runtime/graph/extent.h"
#include "runtime/plan/program_members.h"

namespace attn::plan {
namespace {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr Extents kMostBlocks = {(std::int64_t{1} << 31) - 1, 65535, 65535};
constexpr Extents kMostBlockThreads = {1024, 1024, 64};
constexpr std::int64_t kMostThreads = 1024;  // of a block
constexpr std::int64_t kMostCluster = 8;     // blocks of a cluster, on every GPU that has clusters
constexpr std::int64_t kMostShared = 227 << 10;
// CUDA driver API, cuTensorMapEncodeTiled.
constexpr std::size_t kMostMapDims = 5;
constexpr std::int64_t kMostMapDim = std::int64_t{1} << 32;
constexpr std::int64_t kMostMapStride = std::int64_t{1} << 40;  // bytes
constexpr std::int64_t kMostBox = 256;
constexpr const char* kInvalidRank = "has a tensor map of invalid rank";
constexpr std::int64_t kMapAlignment = 16;  // of addresses, strides and the box's rows, in bytes

// The largest number that facts may have: they are added and multiplied.
constexpr std::int64_t kMostOfFacts = std::int64_t{1} << 40;

bool is_identifier(const std::string& name) {
  const auto is_part = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !name.empty() && name.size() <= 256 && std::ranges::all_of(name, is_part);
}

bool within(const Extents& extents, const Extents& most) {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] < 1 || extents[i] > most[i]) return false;
  }
  return true;
}

std::int64_t volume(const Extents& extents) { return extents[0] * extents[1] * extents[2]; }

bool divides(const Extents& cluster, const Extents& grid) {
  return grid[0] % cluster[0] == 0 && grid[1] % cluster[1] == 0 && grid[2] % cluster[2] == 0;
}

std::string check_launch(const Launch& launch) {
  constexpr Extents kCluster = {kMostCluster, kMostCluster, kMostCluster};
  if (!is_identifier(launch.kernel)) return "launches a kernel without a valid name";
  if (!within(launch.grid, kMostBlocks)) return "has an invalid grid";
  if (!within(launch.block, kMostBlockThreads) || volume(launch.block) > kMostThreads) {
    return "has an invalid block";
  }
  if (!within(launch.cluster, kCluster) || volume(launch.cluster) > kMostCluster ||
      !divides(launch.cluster, launch.grid)) {
    return "has an invalid cluster";
  }
  if (launch.shared_bytes < 0 || launch.shared_bytes > kMostShared) {
    return fmt::format("takes {} bytes of shared memory", launch.shared_bytes);
  }
  std::int64_t bytes = 0;
  for (const KernelArgument& argument : launch.arguments) bytes += bytes_of(argument);
  return bytes > static_cast<std::int64_t>(kMostArgumentBytes) ? "has too many arguments" : "";
}

bool all_within(const std::vector<std::int64_t>& values, std::int64_t most) {
  return std::ranges::all_of(values, [most](std::int64_t v) { return v >= 1 && v <= most; });
}

// Whether all numbers among the members are within the limit (runtime/graph/members.h).
class FactsWithin {
 public:
  bool holds = true;

  void operator()(std::string_view, const auto& fact) { look_at(fact); }
  void optional(std::string_view, const auto& fact, const auto&...) { look_at(fact); }

 private:
  void look_at(bool) {}
  void look_at(std::int64_t number) { holds = holds && number >= 0 && number <= kMostOfFacts; }
  void look_at(const auto& blocks) {
    if (blocks) members(*blocks, *this);
  }
};

bool are_valid(const KernelFacts& facts, const KernelStep& step) {
  FactsWithin within;
  members(facts, within);
  const std::int64_t fewest =
      std::min({facts.tile, facts.block, facts.heads, facts.depth, facts.width, facts.groups,
                facts.stages, facts.parts, facts.items, facts.blocks ? facts.blocks->lists : 1});
  return within.holds && fewest >= 1 &&
         facts.launch < static_cast<std::int64_t>(step.launches.size()) &&
         (facts.patch_width == 0) == (facts.patch_height == 0);
}

}  // namespace

std::string check_launches(const KernelStep& step) {
  if (step.source.empty()) return "has no source";
  if (step.outputs.empty()) return "writes nothing";
  if (step.outputs.size() + step.zeroed.size() > kMostWritten) return "writes too many tensors";
  if (step.launches.empty() || step.launches.size() > kMostLaunches) {
    return "has no launches or too many";
  }
  if (step.launches[0].overlaps) return "has a first launch that overlaps another";
  for (const Launch& launch : step.launches) {
    if (std::string what = check_launch(launch); !what.empty()) return what;
  }
  if (step.facts && !are_valid(*step.facts, step)) return "has invalid facts";
  return "";
}

// The dimension of a packed map that has the rows of a sequence; nullopt if it does not have them
// three times, and any of them once alone.
static std::optional<std::size_t> rows_of_packed(const TensorMapArgument& map) {
  const std::size_t rank = map.dims.size();
  if (rank < 4 || map.strides.size() + 1 != rank) return std::nullopt;
  for (const std::size_t at : {rank - 2, rank - 1}) {
    if (map.dims[at] != TensorMapArgument::kPackedMost || map.box[at] != 1) return std::nullopt;
  }
  std::optional<std::size_t> found;
  for (std::size_t at = 1; at + 2 < rank; ++at) {
    if (map.dims[at] != TensorMapArgument::kPackedSteps) continue;
    if (found || map.strides[at - 1] != map.strides[rank - 3]) return std::nullopt;
    found = at;
  }
  return found;
}

std::string check_axes(const TensorMapArgument& map, const TensorInfo& tensor) {
  const auto rank = static_cast<std::int64_t>(tensor.dims.size());
  const auto fits = [&](const std::int64_t& axis) {
    if (axis == TensorMapArgument::kPagesAndHeads) return &axis == &map.axes.back() && rank == 4;
    return axis >= TensorMapArgument::kNoAxis && axis < rank;
  };
  if (map.dims.size() != map.strides.size() + 1) return kInvalidRank;
  const bool whole = map.axes.size() == (tensor.bound_strides ? map.strides.size() : 0);
  return whole && std::ranges::all_of(map.axes, fits) ? "" : "has a tensor map of invalid axes";
}

std::string check_map(const TensorMapArgument& map, const TensorInfo& tensor) {
  const std::size_t rank = map.dims.size();
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
  if (rank > kMostMapDims || map.box.size() != rank) return kInvalidRank;
  if (!all_within(map.dims, kMostMapDim) || !all_within(map.box, kMostBox) ||
      !all_within(map.strides, (kMostMapStride - 1) / width)) {
    return "has a tensor map of invalid size";
  }
  // No product is computed, which could overflow: every width divides the alignment.
  const auto is_aligned = [width](std::int64_t elements) {
    return elements % (kMapAlignment / width) == 0;
  };
  if (!std::ranges::all_of(map.strides, is_aligned) || !is_aligned(map.box[0]) ||
      !is_aligned(map.tensor.offset) || !is_aligned(map.tensor.advance) ||
      tensor.alignment < kMapAlignment) {
    return "has a tensor map that is not aligned to 16 bytes";
  }
  // An internal tensor has as many rows as all sequences may have.
  const bool has_rows = !tensor.addressed_by.empty() || tensor.role == TensorRole::internal;
  if (map.packed && (!has_rows || !rows_of_packed(map))) {
    return "has a tensor map of packed rows without their dimensions";
  }
  const bool known =
      map.swizzle == 0 || map.swizzle == 32 || map.swizzle == 64 || map.swizzle == 128;
  if (!known || (map.swizzle != 0 && map.box[0] * width > map.swizzle)) {
    return "has a tensor map of invalid swizzle";
  }
  if (map.promotion != 128 && map.promotion != 256) {
    return "has a tensor map of invalid promotion";
  }
  return "";
}

std::optional<std::int64_t> last_mapped(const TensorMapArgument& map) {
  std::vector<std::int64_t> dims = map.dims, strides = {1};
  strides.insert(strides.end(), map.strides.begin(), map.strides.end());
  if (map.packed) {  // rows are those that a control tensor says
    dims[*rows_of_packed(map)] = 1;
    dims.back() = *(dims.end() - 2) = 1;
  }
  return last_offset(dims, strides);
}

}  // namespace attn::plan
