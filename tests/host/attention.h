// Compares programs of an attention, run on the host, with the reference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "tests/host/kernels.h"
#include "tools/compare.h"
#include "tools/inputs.h"
#include "tools/placement.h"

namespace attn::host {

// The attention of a spec without errors.
ir::Attention attention_of(const std::string& text, const sema::Bindings& bindings = {});

// A forward with outputs o and lse, and optionally a backward.
struct Pair {
  std::string lowering;
  plan::Program forward;
  std::optional<plan::Program> backward;
  gpu::Order order = gpu::Order::early_copies;
  tools::Unused unused = tools::Unused::finite;
};

// An attention and the programs to compare.
struct Subject {
  std::string text;  // to reproduce it
  ir::Attention attention;
  std::vector<Pair> pairs;
};

// The outputs, and the gradients if there is a backward, for these inputs. Errors: those of
// Kernels::compile and Machine::run.
Result<tools::Outputs> outputs_of(const Pair& pair, const reference::Inputs& inputs);
// Those of each pair; all programs are compiled at once.
Result<std::vector<tools::Outputs>> outputs_of(const std::vector<Pair>& pairs,
                                               const reference::Inputs& inputs);

// Names of the strategies that are compared for every spec: all that are fast, but `unified` (one
// node), `block_sparse` and attnc's own kernels, which have tests of their own.
std::vector<std::string> strategies_on_host();

// Reports a GoogleTest failure if outputs or gradients of a pair differ from the reference by more
// than the bounds of tools/compare.h. Inputs are those of `attnc verify`. Compiles all programs at
// once.
void expect_reference(const std::vector<Subject>& subjects);

}  // namespace attn::host
