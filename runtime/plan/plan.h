// A compiled attention: the program, the cuDNN plan or kernel of each step, and what they were
// compiled for. Plain data; reading, writing and inspecting it needs neither CUDA nor cuDNN.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"
#include "runtime/plan/shape.h"

namespace attn::plan {

struct Knob {
  std::int64_t type = 0;  // cudnnBackendKnobType_t
  std::int64_t value = 0;
  bool operator==(const Knob&) const = default;
};

// The compiled form of one CudnnStep.
struct CompiledStep {
  std::string heuristic;  // "A", "FALLBACK" or "NONE": source of the engine config
  std::int64_t engine = 0;
  std::vector<Knob> knobs;
  std::int64_t workspace_bytes = 0;
  std::string cudnn_plan;  // EXECUTION_PLAN_JSON_REPRESENTATION, compiled kernel included
  bool operator==(const CompiledStep&) const = default;
};

// The GPU that a plan is for.
struct Target {
  std::string name;         // "h200", or the file's stem, or the device's name
  std::int64_t sm = 0;      // compute capability * 10: 90 for Hopper
  std::string device_json;  // DEVICEPROP_JSON_REPRESENTATION
  bool operator==(const Target&) const = default;
};

struct Signature {
  std::string text;  // canonical; compared, not only hashed
  Hash128 hash;
  bool operator==(const Signature&) const = default;
};

// A strategy that was considered, with its predicted or measured time on the target.
struct Alternative {
  std::string strategy;
  double predicted_ms = 0;
  std::optional<double> measured_ms{};  // on a device, when asked for (--autotune)
  std::string refused{};                // why it was not possible, if it was tried
  // Signature::hash, in hexadecimal, of what was measured or refused, which holds for nothing else.
  // Empty where nothing remembers it.
  std::string signature{};
  bool operator==(const Alternative&) const = default;
};

// Offsets of the program's internal tensors: of those recomputed by each execute, or `once`. What
// the memory of a caller's schedule replaces is behind all others.
struct InternalPlaces {
  std::map<std::string, std::int64_t> offsets;  // in bytes, multiples of 256
  std::int64_t bytes = 0;
  std::int64_t bytes_without_schedule = 0;
};
InternalPlaces internal_places(const Program& program, bool once);

struct Plan {
  std::string spec_name;                        // the attention's name
  std::string spec_text;                        // source text, informational
  std::map<std::string, std::string> bindings;  // --bind, sorted
  Shape shape;                                  // follows from the spec and the bindings
  // The strategies considered, the chosen one first. Informational, not part of the signature.
  std::vector<Alternative> choice;
  // What was decided, to be printed; not part of the signature.
  std::string strategy;              // the one that was taken
  std::vector<std::string> without;  // the rewrites that were disabled
  std::vector<std::string> parts;    // of the mask, or lists of blocks, one line each
  Target target;
  std::int64_t cudnn_version = 0;  // cudnnGetVersion(), e.g. 91900
  std::string nvrtc_version{};  // "13.0", of the one that made the kernels; empty without kernels
  Program program;
  std::vector<CompiledStep> compiled;  // one for each cuDNN step of the program, in order
  std::vector<std::string>
      kernels;  // a cubin for each other step, in order, then that of the check
  Signature signature;

  // The largest cuDNN step's workspace, as steps run one after another, plus the internal tensors
  // that each execute recomputes (internal_places), which outlive their step.
  std::int64_t workspace_bytes() const;
  bool operator==(const Plan&) const = default;
};

// Canonical text of program + target device + versions of what compiled it, and its hash.
Signature signature_of(const Program& program, const Target& target, std::int64_t cudnn_version,
                       const std::string& nvrtc_version);
Signature signature_of(const Plan& plan);

// The contents of an `.attnplan` file (docs/plan-format.md) that holds only this plan (several:
// bundle.h). Deterministic. The plan must be one that deserialize accepts: a valid program, a
// CompiledStep or kernel for each step, the signature of signature_of, and parts within the
// format's limits.
std::string serialize(const Plan& plan);

// The file's plan of that direction. Errors: plan_foreign, plan_newer, plan_truncated,
// plan_damaged; invalid_argument if it has none of that direction or several (a
// note lists what it has). Never reads past `bytes` or allocates more than a small multiple of the
// format's limits, whatever the input.
Result<Plan> deserialize(std::string_view bytes, Direction direction = Direction::forward);
// The same for GPUs of this compute capability (90 is 9.0), of a file that has plans for several.
// Errors also: plan_device if it has none for it.
Result<Plan> deserialize(std::string_view bytes, Direction direction, std::int64_t sm);

// The manifest as JSON text (printed by `attnc inspect --format json`), without kernels.
std::string manifest_json(const Plan& plan);

// Atomic (temporary file in the same folder, then rename). Errors: io; load also those of
// deserialize.
Status save(const Plan& plan, const std::string& path);
Result<Plan> load(const std::string& path, Direction direction = Direction::forward);

}  // namespace attn::plan
