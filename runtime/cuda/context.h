// A retained primary context and the driver that it belongs to. Internal to runtime/cuda.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/memory.h"

namespace attn::cuda {

class Context {
 public:
  static Result<std::shared_ptr<const Context>> retain(int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  Status make_current() const;
  CUcontext handle() const { return handle_; }
  Status check(CUresult result, std::string_view action) const {
    return driver_.check(result, action);
  }

  // Frees memory that nothing will use but what was enqueued, once the device has done that, and
  // what earlier calls could not free. While it is not known whether the device has (no call may
  // wait for it while a stream is captured), the memory is kept. What is left at the end of the
  // context is not freed: work that the application still has may use it.
  void give_back(std::list<Lent> lent) const noexcept;

  int ordinal = 0;
  std::string name;
  std::int64_t sm = 0;
  std::int64_t l2_bytes = 0;

 private:
  Context(const Driver& driver, CUdevice device, CUcontext handle)
      : driver_(driver), device_(device), handle_(handle) {}
  Status read_properties();
  // Waits until the device has done all that was enqueued. False: it may not have.
  bool wait_for_all() const;

  const Driver& driver_;
  CUdevice device_;
  CUcontext handle_;
  mutable std::mutex mutex_;      // guards kept_
  mutable std::list<Lent> kept_;  // not freed yet
};

inline CUdeviceptr to_address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace attn::cuda
