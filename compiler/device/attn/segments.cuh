// Segments: runs of equal elements in a list of all rows.
#pragma once

#include "attn/values.cuh"

namespace kernels {

// A list of `rows` elements for each batch, or one for all of them. A list is divided into pieces:
// finding a segment scans the numbers of segments that begin in each piece, then one piece.
template <typename T>
struct Segments {
  const T* list = nullptr;
  long long rows = 1, batches = 1;
  bool by_batch = false;
  int piece = 16;
  long long most = 1;     // segments of a list
  long long longest = 1;  // rows of a segment

  __device__ long long pieces() const { return (rows + piece - 1) / piece; }

  __device__ static bool begins(const T* of, long long s) { return s == 0 || of[s] != of[s - 1]; }

  // How many segments begin in piece i of all lists.
  __device__ int changes(long long i) const {
    const T* of = list + i / pieces() * rows;
    const int from = i % pieces() * piece;
    const int to = from + piece < rows ? from + piece : rows;
    int count = 0;
    for (int s = from; s < to; ++s) count += begins(of, s);
    return count;
  }

  // Where segment i begins, `most` for each batch; then the number of all rows.
  __device__ int start(long long i, const int* changes) const {
    const int b = i / most;
    if (b == batches) return b * rows;
    const long long number = by_batch ? b : 0;
    const int* counts = changes + number * pieces();
    int before = i % most, at = 0;
    while (at < pieces() && before >= counts[at]) before -= counts[at++];
    const T* of = list + number * rows;
    int s = at * piece < rows ? at * piece : rows;
    for (; s < rows; ++s) {
      if (begins(of, s) && before-- == 0) break;
    }
    return b * rows + s;
  }

  // The fault at row i of all lists, or 0: 1 if the list decreases, 2 if it has too many segments,
  // 3 if one is too long. Segments are counted at the last row or, if `exact`, where one too many
  // may begin.
  __device__ int fault(long long i, bool exact) const {
    const T* of = list + i / rows * rows;
    const int s = i % rows;
    if (s > 0 && of[s] < of[s - 1]) return 1;
    const bool counts = exact ? s > 0 && of[s] != of[s - 1] : s == rows - 1;
    int count = 1;
    for (int at = 1; counts && at <= s; ++at) count += of[at] != of[at - 1];
    if (exact ? counts && count == most + 1 : count > most) return 2;
    return s >= longest && of[s - longest] == of[s] ? 3 : 0;
  }
};

}  // namespace kernels
