// The manifest: everything in a plan except compiled bytes, as JSON. Each cuDNN plan and kernel is
// represented by its size and hash.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::plan {

// Expected size and hash of a step's cuDNN plan or kernel.
struct PlanPart {
  std::uint64_t bytes = 0;
  std::string hash;  // Hash128::to_hex of the unpacked bytes
};

struct Manifest {
  Plan plan;  // each CompiledStep::cudnn_plan and kernel empty; workspace and signature as stored
  std::vector<PlanPart> parts;
  std::vector<PlanPart> kernels;
};

// The manifest, as manifest_json writes it.
nlohmann::ordered_json manifest_value(const Plan& plan);

// Number of JSON values (numbers, strings, arrays and objects), which kMaxManifestValues bounds.
std::size_t manifest_values(const Plan& plan);

// Reads and checks: the program is valid, every step has its CompiledStep or kernel, and the
// signature matches the content. Errors: plan_damaged.
Result<Manifest> read_manifest(std::string_view json);

}  // namespace attn::plan
