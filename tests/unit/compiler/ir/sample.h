// An attention that uses every clause of the textual form.
#pragma once

#include <string_view>

namespace attn::ir {

inline constexpr std::string_view kSample = R"(attention sample {
  dims B=2 Hq=8 Hkv=4 Sq=? Skv=129 Dqk=256 Dv=128
  dtype bf16
  layout k=bhsd o=sbhd q=bshd v=strided(4096,128,512,1)
  align bottom_right
  tensor doc: i32[%0, %1]
  tensor keep: bool[%1]
  param cap: f32
  %0: int = dim Sq
  %1: int = const_int 129
  %2: int = batch
  %3: int = head
  %4: int = row
  %5: int = column
  %6: real = param cap
  %7: real = const_real 0.0625
  %8: real = score
  %9: real = const_real -inf
  %10: real = div %8, %6
  %11: real = tanh %10
  %12: bool = ge %4, %5
  %13: real = select %12, %11, %9
  %14: int = load doc, %2, %5
  %15: bool = eq %3, %14
  %16: bool = load keep, %5
  %17: bool = or %15, %16
  %18: bool = const_bool true
  scale %7
  score %13
  mask %17
  mask %18
  outputs o lse
}
)";

}  // namespace attn::ir
