// What a program has declared, and what its steps have written, up to the step that is checked.
// Internal to runtime/plan.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "runtime/plan/program.h"

namespace attn::plan {

struct ProgramSoFar {
  std::map<std::string, const TensorInfo*> tensors;
  std::map<std::string, const ParamInfo*> params;
  std::map<std::string, std::int64_t> written;  // elements written by earlier steps
  std::set<std::string> once;                   // those written when the plan is loaded
  std::int64_t turns = 1;                       // of the current step
  bool has_schedule = false;                    // some step up to the current one

  const TensorInfo* tensor(const std::string& name) const;  // nullptr if there is none
  // Whether earlier steps have written all of it; for an internal tensor, any part.
  bool is_whole(const TensorInfo& tensor) const;
  // Elements that were written before. An internal tensor that is completely written may be written
  // again.
  std::int64_t written_before(const TensorInfo& tensor) const;
  bool is_output_of_loop(const TensorInfo& tensor) const;
  // Whether the operand begins at or before element `last` in every iteration.
  bool stays_within(const TensorOperand& operand, std::int64_t last) const;
};

// Whether steps write it: outputs and internal tensors.
bool is_made(const TensorInfo& tensor);
std::string_view what_is(const TensorInfo& tensor);  // one of those, in messages
std::int64_t elements(std::span<const std::int64_t> dims);
bool is_scalar_type(DType type);
// Returns an error text, or an empty string.
std::string check_constant(const ConstantOperand& constant);

// Checks the graph and what its tensors are bound to, and notes what it writes.
Status check_cudnn_step(std::size_t index, const CudnnStep& step, ProgramSoFar& so_far);

}  // namespace attn::plan
