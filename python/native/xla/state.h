// What XLA keeps for one place of a program that calls a plan: the plan, and what is loaded on each
// device. Internal to python/native/xla.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loaded.h"

namespace attn::xla {

class State {
 public:
  // Null, with a status and its text, if the bytes are no plan file with this index.
  static std::unique_ptr<State> make(std::string_view file, std::int64_t index,
                                     std::span<const double> params, attn_status& status,
                                     std::string& text);
  ~State();

  // What is loaded on a device (below kMostDevices), now if nothing was. Null, with a status and
  // `error`. Thread-safe; waits for another thread that loads there.
  Loaded* on(std::int32_t device, attn_status& status, attn_error* error);

 private:
  Plan plan_;
  std::size_t index_ = 0;
  std::vector<double> params_;
  std::mutex loading_;
  std::array<std::atomic<Loaded*>, kMostDevices> loaded_{};
};

// Gives the state to the call's XLA, which destroys it with the program. Null, or XLA's error.
ffi::Error* keep(const ffi::Call& call, std::unique_ptr<State> state);
// The state that `keep` gave; null, with XLA's error, if there is none.
State* state_of(const ffi::Call& call, ffi::Error*& error);

}  // namespace attn::xla
