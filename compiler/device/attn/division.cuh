// Blocks of keys that many rows see, divided among blocks of threads (backward.cuh): a list of
// parts, known when the kernel is made, or made with the lists (row_lists.cuh).
#pragma once

namespace kernels {

// A part of the steps that the rows of one block of keys take: the `part`-th of `parts` equal ones.
// Parts of a block of keys follow each other in the list. If it is the only one, the block is not
// divided.
struct alignas(16) Part {
  int unit;  // head of keys, of all batches
  int tile;  // the place of the block of keys in the lists
  int part, parts;
};

// Where blocks of keys are taken in ascending order: the item that the first part of a block is,
// and that part's number in the list.
struct alignas(8) DividedBlock {
  int item, part;
};

// Parts that the GPU lists.
struct alignas(16) Division {
  int parts;       // how many
  int most;        // blocks of rows of a block of keys that is not divided
  int lists_done;  // 0 at first
  int blocks;      // of all lists; 0 at first

  // They follow.
  __device__ const Part& part(int i) const { return reinterpret_cast<const Part*>(this + 1)[i]; }
  __device__ Part& part(int i) { return reinterpret_cast<Part*>(this + 1)[i]; }
};

// Marks an item whose unit is instead the number of the part that it is.
constexpr int kOfPart = 1 << 30;
template <class C>
constexpr bool kDivides = C::kDivided > 0;
// Whether parts are among other items, in the order of their blocks of keys.
template <class C>
constexpr bool kPartsInOrder = kDivides<C>&& C::kOrdered&& C::kItems > 0;

}  // namespace kernels
