#include "bench/quiet.h"

#include <algorithm>
#include <array>

namespace attn::cuda {
namespace {

// The driver compiles it for the local device.
constexpr const char* kPausePtx = R"ptx(
.version 7.0
.target sm_80
.address_size 64

.visible .entry attn_pause(.param .u64 nanoseconds)
{
  .reg .pred %more;
  .reg .u64 %now, %end;

  ld.param.u64 %end, [nanoseconds];
  mov.u64 %now, %globaltimer;
  add.u64 %end, %end, %now;
again:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %more, %now, %end;
  @%more bra again;
  ret;
}
)ptx";

}  // namespace

Result<Pause> Pause::create(const Device& device) {
  ATTN_ASSIGN(const Module module, Module::load(device, kPausePtx));
  ATTN_ASSIGN(Kernel kernel, module.kernel("attn_pause"));
  return Pause(std::move(kernel));
}

Status Pause::enqueue(void* stream, std::chrono::nanoseconds duration) const {
  unsigned long long nanoseconds = static_cast<unsigned long long>(duration.count());
  std::array<void*, 1> arguments = {&nanoseconds};
  return kernel_.launch(stream, {}, arguments.data());
}

Result<L2Flush> L2Flush::create(const Device& device) {
  constexpr std::int64_t kAtLeast = 64 << 20;
  const auto bytes = static_cast<std::size_t>(std::max(kAtLeast, 4 * device.l2_bytes()));
  ATTN_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(device, bytes));
  return L2Flush(device, std::move(buffer));
}

Status L2Flush::enqueue(void* stream) const {
  return zero(device_, stream, buffer_.data(), buffer_.size());
}

}  // namespace attn::cuda
