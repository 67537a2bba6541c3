// Plans for the stand-ins, and their expected outputs.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace attn::standin {

struct PlanOptions {
  int number = 0;                // plans with different numbers differ in signature and results
  int steps = 1;                 // cuDNN steps; each reads the output of the one before
  int params = 1;                // "p0", "p1", ..: f32
  std::int64_t workspace = 512;  // of each cuDNN step
  bool derives_once = false;     // an internal tensor that is computed at load
  bool derives_each = false;     // one computed at every execute, from "table" and the params
  bool checks = false;           // an index check that always passes
  std::int64_t sm = 90;
  std::int64_t version = 91900;
};

// A valid plan with tensors q and o, bf16 [1,2,4,8], and with derives_each or checks also table,
// f32 [16].
plan::Plan make_plan(const PlanOptions& options = {});

// A plan of any valid program; uses the options number, workspace, sm and version.
plan::Plan plan_of(const plan::Program& program, const PlanOptions& options = {});

using Bytes = std::map<std::string, std::vector<std::byte>>;  // by tensor name
using Params = std::map<std::string, double>;

// The bytes of every output of the plan, computed on the host.
Bytes expected_outputs(const plan::Plan& plan, const Bytes& inputs, const Params& params);

}  // namespace attn::standin
