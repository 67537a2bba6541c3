// Kernels of prologues (ir::Prologue): one before the attention that writes what it reads in place
// of q and k, and one after its backward that goes on from their gradients.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "compiler/codegen/element_parts.h"
#include "compiler/ir/prologues.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

inline constexpr const char* kProloguesKernel = "attn_prologues";
inline constexpr const char* kPrologueGradientsKernel = "attn_prologue_gradients";

// The rows of one of q and k. Strides are in elements, of [B,H,S,D].
struct PrologueRows {
  const ir::PrologueView* view = nullptr;
  std::array<std::int64_t, 4> strides{};  // of the bound tensor
  std::string made;                       // what the prologue makes, [B,H,S,D] row-major
};

// The longest rows of which shared memory holds what a block of threads needs: forward 1536
// elements, backward 512.
std::int64_t most_columns_of_prologues(bool backward);

// One launch that makes all of them. Reals are computed in single precision.
plan::KernelStep prologues_step(const std::vector<PrologueRows>& rows);

// Where gradients come from and go to.
struct PrologueGradientTensors {
  struct Of {
    PrologueRows rows;
    std::string made;                       // the gradient of what is made, row-major
    std::string gradient;                   // of the bound tensor, or "" if it is not wanted
    std::array<std::int64_t, 4> strides{};  // of this gradient
  };
  std::vector<Of> of;
  std::vector<std::string> learned;                             // whose gradients are written, too
  std::function<std::string(const std::string& learned)> rest;  // as of SumGradientTensors
};
MadeSteps prologue_gradients(const ir::Attention& attention,
                             const PrologueGradientTensors& tensors);

}  // namespace attn::codegen
