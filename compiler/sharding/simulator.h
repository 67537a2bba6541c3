// Runs the programs of all ranks on the host, in double: each rank has the tensors of its homes and
// what messages brought it, and computes its parts by the reference.
#pragma once

#include <functional>
#include <vector>

#include "compiler/reference/gradients.h"
#include "compiler/sharding/rank_program.h"

namespace attn::sharding {

struct Simulated {
  reference::Outputs outputs;
  reference::GradientSums gradients;  // with d_o: of "q", "k", "v" and learned tensors
};

struct Simulating {
  int threads = 1;  // of each part; 0: as many as the machine has
  // Called as reference::Observer's, with the share of all work that is done, from 0 to 1.
  std::function<void(double share)> advances{};
  // dlse, [B,Hq,Sq], with d_o where the attention reads_d_lse.
  const io::HostTensor* d_lse = nullptr;
};

// `inputs` are those of the whole attention, of which each rank takes the rows and keys of its
// homes, and captured tensors whole. Nothing is rounded, whatever dtypes messages have. Without
// `d_o`, only the forward. Errors: those of the reference; internal, if a rank lacks what it
// computes with.
Result<Simulated> simulate(const ir::Attention& attention, RankPrograms programs,
                           const reference::Inputs& inputs, const io::HostTensor* d_o,
                           const Simulating& how = {});

}  // namespace attn::sharding
