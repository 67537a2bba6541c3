// A rank's tensors in the simulator: rows or keys of some heads, wherever they came from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/sharding/sets.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::sharding {

// Some heads and indices of a [B, heads, indices, width] tensor, in ascending order.
struct Slice {
  Interval heads;
  Intervals indices;
  io::HostTensor values;
};

Slice zeros(std::int64_t batches, Interval heads, const Intervals& indices, std::int64_t width,
            double value = 0);

// Copies what both have to `to`, or calls op(element of to, element of from).
using Combine = void (*)(double& to, double from);
void copy_common(const Slice& from, Slice& to);
void combine_common(const Slice& from, Slice& to, Combine combine);

// The slice made of what the slices have. Errors: internal, if one of them lacks a part.
Result<Slice> taken(const std::vector<Slice>& from, Interval heads, const Intervals& indices,
                    const std::string& what);

}  // namespace attn::sharding
