// Runs an attention and its gradients on host values: with the reference, or with cuDNN on the
// local GPU.
#pragma once

#include <map>
#include <string>

#include "compiler/reference/gradients.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"
#include "tools/placement.h"
#include "tools/plans.h"

namespace attn::tools {

// The outputs that the spec asks for, by name, in logical order.
using Outputs = std::map<std::string, io::HostTensor>;

// Errors: those of reference::evaluate.
Result<Outputs> run_reference(const ir::Attention& attention, const reference::Inputs& inputs,
                              const reference::Options& options);

struct ReferenceGradients {
  Outputs outputs;  // gradients, and with `forward` the forward's outputs
  Outputs sizes;    // of the gradients (reference::Gradients::sizes), if options.sizes
};

// The gradients that the spec asks for (gradient::wanted_gradients), and with `forward` also its
// outputs. `inputs` must contain the cotangents. Errors: those of reference::gradients.
Result<ReferenceGradients> run_reference_gradients(const ir::Attention& attention,
                                                   reference::Inputs inputs, bool forward,
                                                   const reference::Options& options);

// Executes once on device 0, with other strides than the plan's where they are bound
// (with_other_strides). Outputs are filled with NaN first, to expose elements that a kernel
// does not write. Errors: those of Executable.
Result<Outputs> run_on_device(const plan::Plan& plan, const reference::Inputs& inputs,
                              const std::string& cudnn_folder);

struct Repeated {
  Outputs outputs;  // of the first execute of each plan
  // For each output, how many of the other executes gave different bits.
  std::map<std::string, int> deviations;
};

// The same, `count` times (1 or more) with one executable and the same memory. A backward runs
// after the forward, with o and lse of the forward's first execute; `inputs` must then contain
// the cotangents, and the outputs are those of both.
Result<Repeated> repeat_on_device(const Plans& plans, const reference::Inputs& inputs,
                                  const std::string& cudnn_folder, int count,
                                  Unused unused = Unused::finite);

}  // namespace attn::tools
