// The manifest: everything in a plan but cuDNN's own bytes, as JSON, with the size and hash of each
// cuDNN plan in their place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::plan {

// What the cuDNN plan of one step must be.
struct PlanPart {
  std::uint64_t bytes = 0;
  std::string hash;  // Hash128::to_hex of the unpacked bytes
};

struct Manifest {
  Plan plan;  // each CompiledStep::cudnn_plan empty; workspace and signature as stored
  std::vector<PlanPart> parts;
};

// Reads and checks: a valid program, one CompiledStep a step, the signature that belongs to the
// content. Errors: plan_damaged.
Result<Manifest> read_manifest(std::string_view json);

}  // namespace attn::plan
