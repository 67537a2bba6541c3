// Launches of the kernels that move and merge rows (compiler/device/attn/ranks.cuh), whose image
// is in the file.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/cuda/kernel.h"
#include "runtime/ranks/ranks_parameters.h"
#include "runtime/ranks/schedule.h"

namespace attn::ranks {

// What addresses are relative to.
struct Bases {
  void* memory = nullptr;
  void* table = nullptr;
  std::span<void* const> home;

  void* address(const Address& at) const;
};

// A launch: its parameters, and how many blocks.
struct CopyLaunch {
  RanksCopies copies;
  std::int64_t blocks = 0;
};
struct MergeLaunch {
  RanksMerge merge;
  std::int64_t blocks = 0;
};

// Launches for the copies, as few as possible: copies of one list do not depend on each other.
std::vector<CopyLaunch> launches_of(std::span<const Copy> copies, const Bases& bases);
// `places` is where those of the merge are on the device.
MergeLaunch launch_of(const Merge& merge, const Bases& bases, const RanksPlace* places);
RanksPlace resolved(const MergePlace& place, const Bases& bases);

// Whether launches can count the rows: fewer than 2^31. Errors: unsupported.
Status check_counts(const Schedule& schedule);

class Kernels {
 public:
  // Errors: cuda; plan_damaged if its parameters are others.
  static Result<Kernels> load(const cuda::Device& device, std::string_view image);

  // Each enqueues and returns. Errors: cuda.
  Status run(const CopyLaunch& launch, void* stream) const;
  Status run(const MergeLaunch& launch, void* stream) const;
  Status mark(void* counter, void* stream) const;  // adds 1 to the u32
  Status pause(void* stream) const;                // a launch that does nothing

 private:
  Kernels(cuda::Kernel copy, cuda::Kernel merge, cuda::Kernel mark)
      : copy_(std::move(copy)), merge_(std::move(merge)), mark_(std::move(mark)) {}

  cuda::Kernel copy_, merge_, mark_;
};

}  // namespace attn::ranks
