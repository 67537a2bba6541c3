// Running an attention and its gradients on host values: by the reference, or by cuDNN on the GPU
// at hand.
#pragma once

#include <map>
#include <string>

#include "compiler/reference/gradients.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"
#include "tools/plans.h"

namespace attn::tools {

// The outputs that the spec asks for, by name, in logical order.
using Outputs = std::map<std::string, io::HostTensor>;

// Errors: those of reference::evaluate.
Result<Outputs> run_reference(const ir::Attention& attention, const reference::Inputs& inputs,
                              bool unrounded);

struct ReferenceGradients {
  Outputs outputs;  // gradients, and perhaps the forward's
  Outputs sizes;    // of the gradients (reference::Gradients::sizes), when options.sizes
};

// The gradients that the spec wants (gradient::wanted_gradients), and with `forward` the outputs
// that it asks for. `inputs` has kCotangent. Errors: those of reference::gradients.
Result<ReferenceGradients> run_reference_gradients(const ir::Attention& attention,
                                                   reference::Inputs inputs, bool forward,
                                                   const reference::Options& options);

// One execute on device 0. Outputs are filled with NaN before it, so that what a kernel does not
// write shows. Errors: those of Executable.
Result<Outputs> run_on_device(const plan::Plan& plan, const reference::Inputs& inputs,
                              const std::string& cudnn_folder);

struct Repeated {
  Outputs outputs;  // of the first execute of each plan
  // For each output, how many of the other executes gave it other bits.
  std::map<std::string, int> deviations;
};

// The same, `count` times (1 or more) with one executable and the same memory. A backward comes
// after the forward, and is given o and lse of the forward's first execute; `inputs` has kCotangent
// then, and the outputs are those of both.
Result<Repeated> repeat_on_device(const Plans& plans, const reference::Inputs& inputs,
                                  const std::string& cudnn_folder, int count);

// Why nothing can be run on a GPU here; ok when it can. Loads driver and cuDNN.
Status device_status(const std::string& cudnn_folder);

}  // namespace attn::tools
