// Runs CUDA C++ kernels for compute capability 9.0 on the host. attn/hopper.cuh and attn/wgmma.cuh
// beside this file take the place of those of compiler/device, whose instructions they emulate;
// all other text of a kernel is compiled as it is.
//
// Blocks run one after another, or some at once (Launch). The threads of a block are fibers, which
// run until they wait for something that has not come, the first warp before all others or the last
// one, so that a missing barrier shows, too. What the GPU does asynchronously happens as
// early or as late as waits allow (Order), so that a missing wait shows as a wrong result: a copy
// that comes late finds those who did not wait for it, one that comes early those who had not
// finished with its stage.
//
// What it cannot show: fences between proxies of memory that are missing, races of blocks of
// threads, and the rounding of the GPU's approximations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/dtype.h"
#include "tests/host/gpu/launch.h"
#include "tests/host/gpu/tensor_map.h"
#include "tests/unit/compiler/programs/warps_on_host.h"

namespace attn::gpu {

// Runs a kernel. Returns why it could not end (a trap, a deadlock, an access outside shared
// memory), or nothing. Not thread-safe.
std::string run(HostKernel kernel, void* const* arguments, const Launch& launch, Order order);

// The rest is called by kernels.

// The number of elements of each lane of a warp that is given, in the order of lanes, once all have
// given theirs. Valid until the lane's next call.
const unsigned long long* gather(unsigned long long own);
void sync_named(int name, int threads);
void arrive_named(int name, int threads);
void sync_block();
[[noreturn]] void trap();

// Shared memory: addresses are offsets in it.
unsigned char* shared_memory();
unsigned char* shared_at(unsigned address, std::size_t bytes);

// Barriers at addresses in shared memory.
void init_barrier(unsigned barrier, unsigned arrivals);
void arrive(unsigned barrier);
void expect_bytes(unsigned barrier, unsigned bytes);
bool is_done(unsigned barrier, unsigned parity);
void wait(unsigned barrier, unsigned parity);

// Waits until the word in global memory is that number.
void wait_for_count(const int* count, int number);

// Copies that arrive at a barrier.
void copy_box(unsigned to, const TensorMap& map, unsigned barrier, const int* coordinates,
              int count);
void copy_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier);
// 16 or so many bytes, or zeros if `from` is null; the thread arrives when those before have been
// copied.
void copy_vector(unsigned to, const void* from, std::size_t bytes = 16);
void arrive_with_copies(unsigned barrier);
// The same copies in groups, of which a thread waits for the oldest.
void commit_vectors();
void wait_for_vectors(int left);
// Sums of floats in shared memory to global memory, which the thread waits for.
void add_floats(float* to, unsigned from, unsigned bytes);
void wait_for_sums();

// A product of a warp group, of the forms of wgmma.cuh: c (+)= a b, 64 rows, `columns` columns, 32
// bytes deep: 16 elements, or 32 of 8 bits. `a` and `b` describe matrices in shared memory
// (wgmma.cuh); transposed: the dimension that is contiguous is the rows of a, and the columns of b.
struct Product {
  float* c = nullptr;  // columns / 2
  int columns = 0;
  bool adds = false;
  DType type = DType::bf16;  // f16, bf16, e4m3 or e5m2
  bool has_fragments = false, transposes_a = false, transposes_b = false;
  unsigned fragments[4] = {};  // of a, in registers
  std::uint64_t a = 0, b = 0;
};
void multiply(const Product& product);

// A product of a warp, of the form of mma.cuh: c += a b, 16 rows, 8 columns, 16 deep.
struct WarpProduct {
  float* c = nullptr;        // 4
  DType type = DType::bf16;  // or f16
  unsigned a[4] = {}, b[2] = {};
};
void multiply_in_warp(const WarpProduct& product);
void commit_products();
void wait_for_products(int left);

}  // namespace attn::gpu
