// Running an attention on host values: by the reference, or by cuDNN on the GPU at hand.
#pragma once

#include <map>
#include <string>

#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"
#include "runtime/plan/plan.h"
#include "runtime/reference/evaluate.h"

namespace attn::tools {

// The outputs that the spec asks for, by name, in logical order.
using Outputs = std::map<std::string, io::HostTensor>;

// Errors: those of reference::evaluate.
Result<Outputs> run_reference(const ir::Attention& attention, const reference::Inputs& inputs,
                              bool unrounded);

// "dq", "dk", "dv", and "d_NAME" of a learned tensor.
std::string gradient_name(std::string_view of);

// The gradients that the spec wants (gradient::wanted_gradients), and with `forward` the outputs
// that it asks for. `inputs` has kCotangent. Errors: those of reference::gradients.
Result<Outputs> run_reference_gradients(const ir::Attention& attention, reference::Inputs inputs,
                                        bool forward, bool unrounded);

// One execute on device 0. Outputs are filled with NaN before it, so that what a kernel does not
// write shows. Errors: those of Executable.
Result<Outputs> run_on_device(const plan::Plan& plan, const reference::Inputs& inputs,
                              const std::string& cudnn_folder);

// Why nothing can be run on a GPU here; ok when it can. Loads driver and cuDNN.
Status device_status(const std::string& cudnn_folder);

}  // namespace attn::tools
