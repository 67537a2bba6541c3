// A retained primary context and the driver that it belongs to. Internal to runtime/cuda.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/cuda/driver.h"

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

  int ordinal = 0;
  std::string name;
  std::int64_t sm = 0;
  std::int64_t l2_bytes = 0;

 private:
  Context(const Driver& driver, CUdevice device, CUcontext handle)
      : driver_(driver), device_(device), handle_(handle) {}
  Status read_properties();

  const Driver& driver_;
  CUdevice device_;
  CUcontext handle_;
};

inline CUdeviceptr to_address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace attn::cuda
