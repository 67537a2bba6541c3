#include "tests/unit/compiler/programs/warps_on_host.h"

#include <array>

#include "tests/unit/compiler/programs/stack.h"

namespace {

constexpr std::size_t kLanes = 32;

// One warp, with one stack per lane. Lanes take turns: each writes its value before it waits, so
// all have written when it continues. There are two slots because the first lane may write again
// before the last has read.
class Warp {
 public:
  void run(HostKernel kernel, std::size_t first, void* const* arguments) {
    kernel_ = kernel;
    arguments_ = arguments;
    live_ = kLanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) prepare(lane);
    while (live_ > 0) {
      for (lane_ = 0; lane_ < kLanes; ++lane_) {
        if (ended_[lane_]) continue;
        blockIdx.x = static_cast<unsigned>((first + lane_) / blockDim.x);
        threadIdx.x = static_cast<unsigned>((first + lane_) % blockDim.x);
        stacks_[lane_].enter(run_lane);
      }
    }
  }

  unsigned long long exchange(unsigned long long bits, int lane_mask) {
    const std::size_t lane = lane_;
    std::array<unsigned long long, kLanes>& slots = slots_[turns_[lane]++ % 2];
    slots[lane] = bits;
    stacks_[lane].leave();
    return slots[lane ^ static_cast<std::size_t>(lane_mask)];
  }

 private:
  void prepare(std::size_t lane) {
    turns_[lane] = 0;
    ended_[lane] = false;
    stacks_[lane].forget();
  }

  static void run_lane();

  HostKernel kernel_ = nullptr;
  void* const* arguments_ = nullptr;
  std::size_t lane_ = 0, live_ = 0;
  std::array<unsigned, kLanes> turns_{};
  std::array<bool, kLanes> ended_{};
  std::array<std::array<unsigned long long, kLanes>, 2> slots_{};
  std::array<Stack, kLanes> stacks_;
};

Warp& warp() {
  static Warp warp;
  return warp;
}

void Warp::run_lane() {
  Warp& own = warp();
  own.kernel_(own.arguments_);
  own.ended_[own.lane_] = true;
  --own.live_;
}

}  // namespace

unsigned long long exchange_lanes(unsigned long long bits, int lane_mask) {
  return warp().exchange(bits, lane_mask);
}

void launch_on_host(HostKernel kernel, std::size_t threads, void* const* arguments,
                    bool backwards) {
  const std::size_t warps = (threads + kLanes - 1) / kLanes;
  for (std::size_t i = 0; i < warps; ++i) {
    warp().run(kernel, (backwards ? warps - 1 - i : i) * kLanes, arguments);
  }
}
