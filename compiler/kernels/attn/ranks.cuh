// Kernels that move rows between the tensors of a rank and the messages of others.
#pragma once

// Counts in mapped host memory how many exchanges have begun, or ended.
extern "C" __global__ void attn_ranks_mark(unsigned* counter) { atomicAdd_system(counter, 1U); }
