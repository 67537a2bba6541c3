#include "runtime/cuda/device.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "runtime/cuda/capture.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/failure.h"

namespace attn::cuda {
namespace {

Result<int> attribute(const Driver& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  ATTN_RETURN_IF_ERROR(driver.check(driver.device_get_attribute(&value, which, device),
                                    "reading a property of the CUDA device"));
  return value;
}

}  // namespace

Result<int> device_count() {
  ATTN_ASSIGN(const Driver* driver, cuda::driver());
  int count = 0;
  ATTN_RETURN_IF_ERROR(driver->check(driver->device_get_count(&count), "counting CUDA devices"));
  return count;
}

Result<std::shared_ptr<const Context>> Context::retain(int ordinal) {
  ATTN_ASSIGN(const Driver* driver, cuda::driver());
  ATTN_ASSIGN(int count, device_count());
  if (ordinal < 0 || ordinal >= count) {
    return {ErrorCode::invalid_argument,
            fmt::format("there is no CUDA device {}: this machine has {}", ordinal, count)};
  }
  CUdevice device = 0;
  CUcontext handle = nullptr;
  ATTN_RETURN_IF_ERROR(
      driver->check(driver->device_get(&device, ordinal), "opening the CUDA device"));
  ATTN_RETURN_IF_ERROR(driver->check(driver->primary_context_retain(&handle, device),
                                     "retaining the device's primary context"));
  std::shared_ptr<Context> context(new Context(*driver, device, handle));
  context->ordinal = ordinal;
  ATTN_RETURN_IF_ERROR(context->read_properties());
  return std::shared_ptr<const Context>(std::move(context));
}

Context::~Context() {
  if (!kept_.empty()) give_back({});
  driver_.primary_context_release(device_);
}

namespace {

// Whether the context has ended, or every call in it fails: nothing runs there any more.
bool is_dead(const Failure& failure) {
  return failure.kind == FailureKind::fault || failure.code == CUDA_ERROR_DEINITIALIZED ||
         failure.code == CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

// A synchronization ends the captures that it meets. Those of blocking streams are asked for first,
// which ends none.
bool Context::wait_for_all() const {
  Scope scope;
  if (const Status entered = scope.enter(*this); !entered.ok()) {
    return is_dead(failure_of(entered.error()).value_or(Failure{}));
  }
  const RelaxedCapture relaxed(*this);
  CUstreamCaptureStatus status{};
  CUresult result = driver_.stream_is_capturing(CU_STREAM_LEGACY, &status);
  if (result == CUDA_SUCCESS) result = driver_.context_synchronize();
  return result == CUDA_SUCCESS || is_dead(failure_for(result));
}

void Context::give_back(std::list<Lent> lent) const noexcept {
  {
    const std::lock_guard lock(mutex_);
    lent.splice(lent.end(), kept_);
  }
  if (!wait_for_all()) {
    const std::lock_guard lock(mutex_);
    kept_.splice(kept_.end(), lent);
    return;
  }
  Scope scope;
  static_cast<void>(scope.enter(*this).ok());  // allocators are called with it current
  for (const Lent& each : lent) each.allocator->free(each.address, each.bytes, nullptr);
}

Status Context::make_current() const {
  return check(driver_.context_set_current(handle_), "making the CUDA context current");
}

Status Context::read_properties() {
  std::array<char, 256> text{};
  ATTN_RETURN_IF_ERROR(
      check(driver_.device_get_name(text.data(), static_cast<int>(text.size()), device_),
            "reading the device's name"));
  name = text.data();
  ATTN_ASSIGN(int major, attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  ATTN_ASSIGN(int minor, attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  ATTN_ASSIGN(int l2, attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  sm = major * 10 + minor;
  l2_bytes = l2;
  return {};
}

Device::Device(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

Result<Device> Device::open(int ordinal) {
  ATTN_ASSIGN(std::shared_ptr<const Context> context, Context::retain(ordinal));
  return Device(std::move(context));
}

Status Device::make_current() const { return context_->make_current(); }

Status Scope::enter(const Context& context) {
  CUcontext current = nullptr;
  ATTN_RETURN_IF_ERROR(context.check(context.driver().context_get_current(&current),
                                     "querying the current CUDA context"));
  if (current == context.handle()) return {};
  ATTN_RETURN_IF_ERROR(context.make_current());
  entered_ = &context;
  before_ = current;
  return {};
}

Scope::~Scope() {
  if (before_ != nullptr) entered_->driver().context_set_current(static_cast<CUcontext>(before_));
}

Result<std::size_t> Device::free_bytes() const {
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*this));
  std::size_t free = 0, total = 0;
  ATTN_RETURN_IF_ERROR(context_->check(context_->driver().memory_get_info(&free, &total),
                                       "querying free device memory"));
  return free;
}

int Device::ordinal() const { return context_->ordinal; }
const std::string& Device::name() const { return context_->name; }
std::int64_t Device::sm() const { return context_->sm; }
std::int64_t Device::l2_bytes() const { return context_->l2_bytes; }

}  // namespace attn::cuda
