// The classic ways to share an attention among ranks, for the same mask and with the same kernels
// and links: what a sharding is compared with.
//
//   ring         contiguous rows; keys go round, past every rank, whether it sees them or not
//   zigzag ring  the same with an early and a late chunk of rows for each rank
//   Ulysses      heads: rows and keys are exchanged for heads before, and back after
//   all-gather   zigzag rows; every rank gets all keys before it computes
//
// Kernels skip blocks that are hidden in all of them. Partial gradients of keys travel in f32.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/sharding/estimate.h"

namespace attn::sharding {

struct Scheme {
  std::string_view name;
  std::string refusal;  // why it does not serve; empty if it does
  double balance = 1;   // work of the rank with most, of the mean
  double received = 0;  // bytes in the forward, of the rank with most
  double received_backward = 0;
  double forward_ms = 0, backward_ms = 0;
};

std::vector<Scheme> classic_schemes(int ranks, const Estimating& estimating);

}  // namespace attn::sharding
