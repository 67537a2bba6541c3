// One attention as programs of a lowering, run on the host, against the reference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "tests/host/kernels.h"
#include "tools/compare.h"
#include "tools/inputs.h"

namespace attn::host {

// The forward, which makes o and lse, and the backward where there is one.
struct Pair {
  std::string lowering;
  plan::Program forward;
  std::optional<plan::Program> backward;
};

// Attentions of which all programs are compiled at once.
struct Subject {
  std::string text;  // by which it can be had again
  ir::Attention attention;
  std::vector<Pair> pairs;
};

// Fails (GoogleTest) where anything that a pair makes is not the reference's: outputs of the
// forward and gradients, by the bounds of tools/compare.h. Inputs are those of `attnc verify`.
void expect_reference(const std::vector<Subject>& subjects);

}  // namespace attn::host
