// Plans that the stand-ins execute, and what they make of their inputs.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace attn::standin {

struct PlanOptions {
  int number = 0;  // plans of other numbers have other signatures, and compute otherwise
  int steps = 1;   // of cuDNN's; each reads what the one before it made
  int params = 1;  // "p0", "p1", ..: f32
  std::int64_t workspace = 512;  // of each cuDNN step
  bool derives_once = false;     // an internal tensor that is made when the plan is loaded
  bool derives_each = false;     // one that is made at every execute, of "table" and the params
  bool checks = false;           // an index check, which finds nothing
  std::int64_t sm = 90;
  std::int64_t version = 91900;
};

// A valid plan: tensors q bf16 [1,2,4,8], o of the same form, and with derives_each or checks table
// f32 [16].
plan::Plan make_plan(const PlanOptions& options = {});

// A plan of any valid program; of the options number, workspace, sm and version are used.
plan::Plan plan_of(const plan::Program& program, const PlanOptions& options = {});

using Bytes = std::map<std::string, std::vector<std::byte>>;  // by tensor
using Params = std::map<std::string, double>;

// The bytes of every output of such a plan, computed on the host.
Bytes expected_outputs(const plan::Plan& plan, const Bytes& inputs, const Params& params);

}  // namespace attn::standin
