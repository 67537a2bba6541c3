// The pause kernel as PTX, which the driver compiles for the local device.
#pragma once

namespace attn::cuda {

inline constexpr const char* kPausePtx = R"ptx(
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

}  // namespace attn::cuda
