// Products of a warp group: 64 rows by N columns by 16, or by 32 of 8-bit floats, in f32.
//
// An accumulator has N / 2 registers: register 4 j + 2 r + e of lane l of warp w is row
// 16 w + l / 4 + 8 r and column 8 j + 2 (l % 4) + e. Matrices in shared memory are in panels of 128
// or 64 bytes, which TMA's swizzle of so many bytes wrote. Source: PTX ISA, "Asynchronous Warpgroup
// Level Matrix Instructions".
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

ATTN_INLINE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ATTN_INLINE void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `kLeft` of the committed groups run.
template <int kLeft>
ATTN_INLINE void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// The compiler moves no use of the registers across it.
template <int kCount>
ATTN_INLINE void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kCount>
ATTN_INLINE void pin(unsigned (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

// Describes a matrix in shared memory, in panels of 64 or 32 columns of 16 bits. `rows`: bytes
// between groups of 8 rows; `panels`: between panels, of a matrix whose columns are contiguous
// where the product wants its rows to be.
template <int kPanel = 64>
ATTN_INLINE unsigned long long matrix(unsigned address, unsigned rows, unsigned panels) {
  static_assert(kPanel == 64 || kPanel == 32, "swizzles of 128 and 64 bytes");
  constexpr unsigned long long kSwizzle = (kPanel == 64 ? 1ull : 2ull) << 62;
  return (unsigned long long)(address >> 4) | (unsigned long long)(panels >> 4) << 16 |
         (unsigned long long)(rows >> 4) << 32 | kSwizzle;
}

// The matrix that begins so many times 16 bytes behind another. Addresses have 14 bits, so that
// the low word carries nothing, and the high one is a constant.
ATTN_INLINE unsigned long long behind(unsigned long long matrix, unsigned by) {
  return (matrix & ~0xffffffffull) | ((unsigned)matrix + by);
}

// c (+)= a b^T with both in shared memory, 16 columns of each; c += only if `adds`.
template <int kColumns>
struct Scores;
// c (+)= a b with a in registers (16-bit pairs) and 16 rows of b in shared memory.
template <int kColumns>
struct Weighted;
// The same of 8-bit floats: 32 columns of a and of b; then c (+)= a b^T with a in registers, where
// adjacent columns 4 (l % 4) and 16 + 4 (l % 4) of lane l are words, and b in shared memory, too.
template <int kColumns>
struct ScoresOf8Bits;
template <int kColumns>
struct WeightedOf8Bits;

// The text and the operands of the first n registers.
#define ATTN_TEXT_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ATTN_TEXT_16 ATTN_TEXT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ATTN_TEXT_24 ATTN_TEXT_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define ATTN_TEXT_32 ATTN_TEXT_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define ATTN_TEXT_40 ATTN_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ATTN_TEXT_48 ATTN_TEXT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ATTN_TEXT_56 ATTN_TEXT_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define ATTN_TEXT_64 ATTN_TEXT_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define ATTN_TEXT_72 ATTN_TEXT_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define ATTN_TEXT_80 ATTN_TEXT_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define ATTN_TEXT_88 ATTN_TEXT_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define ATTN_TEXT_96 ATTN_TEXT_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define ATTN_TEXT_104 ATTN_TEXT_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define ATTN_TEXT_112 ATTN_TEXT_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define ATTN_TEXT_120 ATTN_TEXT_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define ATTN_TEXT_128 ATTN_TEXT_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define ATTN_8(i)                                                                             \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define ATTN_OPERANDS_8 ATTN_8(0)
#define ATTN_OPERANDS_16 ATTN_OPERANDS_8, ATTN_8(8)
#define ATTN_OPERANDS_24 ATTN_OPERANDS_16, ATTN_8(16)
#define ATTN_OPERANDS_32 ATTN_OPERANDS_24, ATTN_8(24)
#define ATTN_OPERANDS_40 ATTN_OPERANDS_32, ATTN_8(32)
#define ATTN_OPERANDS_48 ATTN_OPERANDS_40, ATTN_8(40)
#define ATTN_OPERANDS_56 ATTN_OPERANDS_48, ATTN_8(48)
#define ATTN_OPERANDS_64 ATTN_OPERANDS_56, ATTN_8(56)
#define ATTN_OPERANDS_72 ATTN_OPERANDS_64, ATTN_8(64)
#define ATTN_OPERANDS_80 ATTN_OPERANDS_72, ATTN_8(72)
#define ATTN_OPERANDS_88 ATTN_OPERANDS_80, ATTN_8(80)
#define ATTN_OPERANDS_96 ATTN_OPERANDS_88, ATTN_8(88)
#define ATTN_OPERANDS_104 ATTN_OPERANDS_96, ATTN_8(96)
#define ATTN_OPERANDS_112 ATTN_OPERANDS_104, ATTN_8(104)
#define ATTN_OPERANDS_120 ATTN_OPERANDS_112, ATTN_8(112)
#define ATTN_OPERANDS_128 ATTN_OPERANDS_120, ATTN_8(120)

// One instruction: `r0` is the number of the first operand after the registers, and so on; `depth`
// is that of the product, and `further` which operands are transposed, if their type has a choice.
#define ATTN_SCORES(type, name, columns, registers, depth, further, r0, r1, r2)                 \
  static __device__ __forceinline__ void add(name, float(&c)[registers], unsigned long long a,  \
                                             unsigned long long b, int adds) {                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" r2                                        \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns depth ".f32." type "." type \
                 " {" ATTN_TEXT_##registers "}, %" r0 ", %" r1 ", p, 1, 1" further ";\n}\n"     \
                 : ATTN_OPERANDS_##registers                                                    \
                 : "l"(a), "l"(b), "r"(adds));                                                  \
  }
#define ATTN_WEIGHTED(type, name, columns, registers, depth, further, r0, r1, r2, r3, r4, r5)      \
  static __device__ __forceinline__ void add(name, float(&c)[registers], unsigned a0, unsigned a1, \
                                             unsigned a2, unsigned a3, unsigned long long b,       \
                                             int adds) {                                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" r5                                           \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns depth ".f32." type "." type    \
                 " {" ATTN_TEXT_##registers "}, {%" r0 ", %" r1 ", %" r2 ", %" r3 "}, %" r4        \
                                            ", p, 1, 1" further ";\n}\n"                           \
                 : ATTN_OPERANDS_##registers                                                       \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(adds));                         \
  }
#define ATTN_PRODUCTS(columns, registers, r0, r1, r2, r3, r4, r5)                         \
  template <>                                                                             \
  struct Scores<columns> {                                                                \
    ATTN_SCORES("bf16", BF16, columns, registers, "k16", ", 0, 0", r0, r1, r2)            \
    ATTN_SCORES("f16", F16, columns, registers, "k16", ", 0, 0", r0, r1, r2)              \
  };                                                                                      \
  template <>                                                                             \
  struct Weighted<columns> {                                                              \
    ATTN_WEIGHTED("bf16", BF16, columns, registers, "k16", ", 1", r0, r1, r2, r3, r4, r5) \
    ATTN_WEIGHTED("f16", F16, columns, registers, "k16", ", 1", r0, r1, r2, r3, r4, r5)   \
  };
#define ATTN_PRODUCTS_OF_8_BITS(columns, registers, r0, r1, r2, r3, r4, r5)            \
  template <>                                                                          \
  struct ScoresOf8Bits<columns> {                                                      \
    ATTN_SCORES("e4m3", E4M3, columns, registers, "k32", "", r0, r1, r2)               \
    ATTN_SCORES("e5m2", E5M2, columns, registers, "k32", "", r0, r1, r2)               \
  };                                                                                   \
  template <>                                                                          \
  struct WeightedOf8Bits<columns> {                                                    \
    ATTN_WEIGHTED("e4m3", E4M3, columns, registers, "k32", "", r0, r1, r2, r3, r4, r5) \
    ATTN_WEIGHTED("e5m2", E5M2, columns, registers, "k32", "", r0, r1, r2, r3, r4, r5) \
  };

ATTN_PRODUCTS(16, 8, "8", "9", "10", "11", "12", "13")
ATTN_PRODUCTS(32, 16, "16", "17", "18", "19", "20", "21")
ATTN_PRODUCTS(48, 24, "24", "25", "26", "27", "28", "29")
ATTN_PRODUCTS(64, 32, "32", "33", "34", "35", "36", "37")
ATTN_PRODUCTS(80, 40, "40", "41", "42", "43", "44", "45")
ATTN_PRODUCTS(96, 48, "48", "49", "50", "51", "52", "53")
ATTN_PRODUCTS(112, 56, "56", "57", "58", "59", "60", "61")
ATTN_PRODUCTS(128, 64, "64", "65", "66", "67", "68", "69")
ATTN_PRODUCTS(144, 72, "72", "73", "74", "75", "76", "77")
ATTN_PRODUCTS(160, 80, "80", "81", "82", "83", "84", "85")
ATTN_PRODUCTS(176, 88, "88", "89", "90", "91", "92", "93")
ATTN_PRODUCTS(192, 96, "96", "97", "98", "99", "100", "101")
ATTN_PRODUCTS(208, 104, "104", "105", "106", "107", "108", "109")
ATTN_PRODUCTS(224, 112, "112", "113", "114", "115", "116", "117")
ATTN_PRODUCTS(240, 120, "120", "121", "122", "123", "124", "125")
ATTN_PRODUCTS(256, 128, "128", "129", "130", "131", "132", "133")

ATTN_PRODUCTS_OF_8_BITS(32, 16, "16", "17", "18", "19", "20", "21")
ATTN_PRODUCTS_OF_8_BITS(64, 32, "32", "33", "34", "35", "36", "37")
ATTN_PRODUCTS_OF_8_BITS(96, 48, "48", "49", "50", "51", "52", "53")
ATTN_PRODUCTS_OF_8_BITS(128, 64, "64", "65", "66", "67", "68", "69")
ATTN_PRODUCTS_OF_8_BITS(160, 80, "80", "81", "82", "83", "84", "85")
ATTN_PRODUCTS_OF_8_BITS(192, 96, "96", "97", "98", "99", "100", "101")
ATTN_PRODUCTS_OF_8_BITS(224, 112, "112", "113", "114", "115", "116", "117")
ATTN_PRODUCTS_OF_8_BITS(256, 128, "128", "129", "130", "131", "132", "133")
#undef ATTN_PRODUCTS_OF_8_BITS
#undef ATTN_PRODUCTS
#undef ATTN_WEIGHTED
#undef ATTN_SCORES

}  // namespace kernels
