// Gradients of learned tensors whose elements several places read: sums that do not depend on the
// order of threads.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

// What reads an element: all places of a matrix, once each.
struct PartsWalk {
  std::int64_t rows = 1, columns = 1;
  // Statements with the row `local` and the column `c`, indented by 4 columns: they set `element`
  // and `part` (double), or return false where there is none.
  std::string part_at;
  KernelInputs inputs;
  struct Read {
    std::string tensor;
    DType dtype;
    std::string parameter;
  };
  std::vector<Read> reads;
  std::string source;  // of what is read, for listings
};

struct MadeSteps {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::Step> steps;
};

// The steps that make the gradient d_NAME of the tensor from its parts, as LearnedSteps do: 0
// without a walk. `rest` is a tensor of the same dtype that is added, or "". Names of internal
// tensors begin with d_NAME and `infix`.
MadeSteps summed_parts(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                       const std::vector<PartsWalk>& walks, const std::string& rest,
                       const std::string& infix);

}  // namespace attn::codegen
