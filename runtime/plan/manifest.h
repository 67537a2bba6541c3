// The manifest: everything in a plan but compiled bytes, as JSON, with the size and hash of each
// cuDNN plan and kernel in their place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::plan {

// The lowest version of the format that can hold the plan; of a file, all of its plans (one or
// more).
std::uint32_t format_version_of(const Plan& plan);
std::uint32_t format_version_of(std::span<const Plan> plans);

// What the cuDNN plan or the kernel of one step must be.
struct PlanPart {
  std::uint64_t bytes = 0;
  std::string hash;  // Hash128::to_hex of the unpacked bytes
};

struct Manifest {
  Plan plan;  // each CompiledStep::cudnn_plan and kernel empty; workspace and signature as stored
  std::vector<PlanPart> parts;
  std::vector<PlanPart> kernels;
};

// As many as kMaxManifestValues bounds: numbers, texts, arrays and objects of its JSON.
std::size_t manifest_values(const Plan& plan);

// Reads and checks: a valid program, one CompiledStep or kernel a step, the signature that belongs
// to the content. Errors: plan_damaged.
Result<Manifest> read_manifest(std::string_view json);

}  // namespace attn::plan
