// Kernels of sums along keys (ir::KeySum): what is summed before scores are computed, and the
// gradients that go on from those of the sums.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/codegen/element_parts.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

inline constexpr const char* kKeySumsKernel = "attn_key_sums";
inline constexpr const char* kKeySumGradientsKernel = "attn_key_sum_gradients";

// One launch that writes these sums, of which there is at least one. Reals are computed and summed
// in double. Dimensions must be bound, and no index may be out of range (faults_of).
plan::KernelStep key_sums_step(const ir::Attention& attention, const std::vector<ir::KeySum>& sums);

// The tensors of what is computed from gradients of sums.
struct SumGradientTensors {
  std::vector<ir::KeySum> sums;      // whose gradients d_NAME, f32, are there
  std::vector<std::string> learned;  // whose gradients d_NAME are written, in their dtypes
  // The tensor, of the same dtype, that has the rest of the gradient of this one, or "".
  std::function<std::string(const std::string& learned)> rest;
};

// The steps, and their internal tensors. In a first launch, sums of the gradients of sums go from
// the last key to the first, and, where each of its elements is summed once, on to a learned
// tensor. Others are summed over all that reads an element, as codegen::learned_steps does: what is
// computed does not depend on the order of threads.
MadeSteps key_sum_gradients(const ir::Attention& attention, const SumGradientTensors& tensors);

}  // namespace attn::codegen
