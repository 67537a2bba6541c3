// Gradients of learned tensors in the backward kernel: sums of parts, each a score's dS' times the
// derivative by an element (gradient/differentiate.h).
//
// A warp adds those of its 16 keys of a block of rows that belong to one element, as far as the
// indices tell (Reach), always in the same order. What blocks of threads add to an element in
// memory are integers (learned_sums.cuh).
#pragma once

#include "attn/learned_sums.cuh"

namespace kernels {

// Which scores of a head read the same element: all, those of a row, of a column, of a diagonal, or
// nobody knows. Of the last two each score has an element of its own, `shared` with other heads, or
// not: `own`.
enum class Reach { heads, row, column, diagonal, unknown, shared, own };

// held: the local derivative's place in ScoredBy::by, or -1 if it is known again when dS is;
// finite: then, of hidden scores, too.
// place: of a reach `heads`, in BackwardTensors::parts, of `own`, in BackwardTensors::own; of
// others, where its sums begin in BackwardTensors::words, of so many elements: those of the tensor,
// or diagonals of all heads. bits: if the local derivative is a constant, by how much a sum of a
// diagonal, or of a `shared` element, may be larger than a product of a row of dO and one of V;
// else 0.
// row, column: of elements that each score has, the distance to that of the next row or column.
// turns: that many parts are alike but for constants; those of a reach `heads` follow each other.
// is_long: the local derivative takes many operations, which are not unrolled for all scores.
struct LearnedPart {
  Reach reach;
  int held;
  bool finite;
  long long place, elements;
  int bits;
  long long row, column;
  int turns;
  bool is_long;
};

// Adds the square of a row, of which 16 adjacent threads have shares, to Largest::squares.
ATTN_INLINE void include_square(unsigned long long* largest, float share) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) share += __shfl_xor_sync(~0u, share, step);
  const unsigned long long square = __float_as_uint(share);
  if (threadIdx.x % 16 == 0 && square > *(volatile unsigned long long*)largest) {
    atomicMax(largest, square);
  }
}

// The scores of a thread in a block of rows, and those of its warp: register 4 j + 2 r + e is of
// row 8 j + 2 (lane % 4) + e and of key lane / 4 + 8 r. `part(i)` has the part of register i, and
// `add(row, key, sum)` takes a sum, with the row and the key of one of its scores.
template <int kScores>
struct WarpScores {
  static __device__ __forceinline__ int row_of(int i) { return i / 4 * 8 + i % 2; }
  static __device__ __forceinline__ int key_of(int i) { return (i / 2 & 1) * 8; }

  static constexpr int kRows = kScores * 2, kRowsOfThread = kScores / 2;
  // Floats that add_diagonals takes in shared memory.
  static constexpr int kSkewed = kRows + 8, kScratch = 8 * kSkewed;

  unsigned lane;

  static __device__ __forceinline__ float of_other(float x, int lanes) {
    return __shfl_xor_sync(~0u, x, lanes);
  }
  // Sums of two lanes: this one keeps that of `upper` or of `lower`.
  static __device__ __forceinline__ float halve(bool keeps_upper, float lower, float upper,
                                                int lanes) {
    return (keeps_upper ? upper : lower) + of_other(keeps_upper ? lower : upper, lanes);
  }

  // The sum over all scores; every lane has it.
  template <typename Part>
  __device__ __forceinline__ float sum(Part part) const {
    float sum = part(0);
#pragma unroll
    for (int i = 1; i < kScores; ++i) sum += part(i);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += of_other(sum, step);
    return sum;
  }

  template <typename Part, typename Add>
  __device__ __forceinline__ void add_columns(Part part, Add add) const {
    float of_key[2] = {};
#pragma unroll
    for (int i = 0; i < kScores; ++i) of_key[i / 2 & 1] += part(i);
    float sum = halve(lane & 1, of_key[0], of_key[1], 1);
    sum += of_other(sum, 2);
    if ((lane & 2) == 0) add(0, lane / 4 + (lane & 1) * 8, sum);
  }

  template <typename Part, typename Add>
  __device__ __forceinline__ void add_rows(Part part, Add add) const {
    constexpr int kHalf = kRowsOfThread / 2, kQuarter = kHalf / 2;
    float half[kHalf], quarter[kQuarter];
    const auto of_row = [&](int n) {
      const int i = n / 2 * 4 + n % 2;
      return part(i) + part(i + 2);
    };
    const bool upper = lane & 16, odd = lane & 8;
#pragma unroll
    for (int n = 0; n < kHalf; ++n) half[n] = halve(upper, of_row(n), of_row(kHalf + n), 16);
#pragma unroll
    for (int n = 0; n < kQuarter; ++n) quarter[n] = halve(odd, half[n], half[kQuarter + n], 8);
#pragma unroll
    for (int n = 0; n < kQuarter; ++n) {
      const float sum = quarter[n] + of_other(quarter[n], 4);
      const int row = n + (upper ? kHalf : 0) + (odd ? kQuarter : 0);
      if ((lane & 4) == 0) add(row / 2 * 8 + (lane & 3) * 2 + row % 2, 0, sum);
    }
  }

  // Sums over equal row - key, which `add(distance, sum)` takes. A lane's own sums are of 8 m + 2
  // (lane % 4) + e - lane / 4; shared memory moves those of each of the eight keys to where they
  // are added.
  template <typename Part, typename Add>
  __device__ __forceinline__ void add_diagonals(float* scratch, Part part, Add add) const {
    float2* const to = reinterpret_cast<float2*>(scratch + lane / 4 * kSkewed) + (lane & 3);
#pragma unroll
    for (int m = -1; m < kRows / 8; ++m) {
      float sums[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float here = m < 0 ? 0 : part(m < 0 ? 0 : 4 * m + e);
        const bool last = m + 1 == kRows / 8;
        sums[e] = last ? here : here + part(last ? 0 : 4 * m + 6 + e);
      }
      float2 both;
      both.x = sums[0], both.y = sums[1];
      to[4 * (m + 1)] = both;
    }
    __syncwarp();
#pragma unroll
    for (int first = 0; first < kRows + 15; first += 32) {
      const int n = first + (int)lane;  // 15 where row and key are equal
      float sum = 0;
#pragma unroll
      for (int key = 0; key < 8; ++key) {
        const int at = n - 7 + key;
        if (at >= 0 && at < kSkewed) sum += scratch[key * kSkewed + at];
      }
      if (n < kRows + 15) add(n - 15, sum);
    }
    __syncwarp();
  }

  // Sums over equal elements that follow each other, where `element(row, key)` tells them; over all
  // scores of the warp if they read one element.
  template <typename Part, typename Element, typename Add>
  __device__ __forceinline__ void add_runs(Part part, Element element, Add add) const {
    long long held = element_of(0, element);
    float sum = part(0);
    bool single = true;
#pragma unroll
    for (int i = 1; i < kScores; ++i) {
      const long long next = element_of(i, element);
      if (next != held) {
        add(held, sum);
        held = next, sum = 0, single = false;
      }
      sum += part(i);
    }
    const long long first = __shfl_sync(~0u, held, 0);  // by all lanes, whatever `single` is
    if (__all_sync(~0u, single && held == first)) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sum += of_other(sum, step);
      if (lane != 0) return;
    }
    add(held, sum);
  }

 private:
  template <typename Element>
  __device__ __forceinline__ long long element_of(int i, Element element) const {
    return element(row_of(i) + (int)(lane & 3) * 2, key_of(i) + (int)(lane / 4));
  }
};

}  // namespace kernels
