// A compiled attention: the program, the cuDNN plan or kernel of each step, and what they were made
// for. Plain data; reading, writing and inspecting it needs neither CUDA nor cuDNN.
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

// What cuDNN made of one CudnnStep.
struct CompiledStep {
  std::string heuristic;  // "A", "FALLBACK" or "NONE": where the engine config came from
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

// A way that could have become the plan, with what it was thought or seen to take on the target.
struct Alternative {
  std::string lowering;
  double predicted_ms = 0;
  std::optional<double> measured_ms{};  // on a device, when asked for (--autotune)
  std::string refused{};                // why it did not, when it was asked and could not
  bool operator==(const Alternative&) const = default;
};

// The program's internal tensors in memory: those made at every execute, and those made once.
struct InternalPlaces {
  std::map<std::string, std::int64_t> offsets;  // in the one or the other, multiples of 256
  std::int64_t bytes = 0;
};
InternalPlaces internal_places(const Program& program, bool once);

struct Plan {
  std::string spec_name;                        // the attention's name
  std::string spec_text;                        // the source as written, for people
  std::map<std::string, std::string> bindings;  // --bind, sorted
  // What follows from the spec and the bindings; a file before version 4 does not say it.
  std::optional<Shape> shape;
  // What was chosen among, the plan's own first: evidence for people, not part of the signature.
  std::vector<Alternative> choice;
  Target target;
  std::int64_t cudnn_version = 0;  // cudnnGetVersion(), e.g. 91900
  Program program;
  std::vector<CompiledStep> compiled;  // one for each cuDNN step of the program, in order
  std::vector<std::string> kernels;    // a cubin for each derive step, in order, then the check's
  Signature signature;

  // The largest of the cuDNN steps, which run one after another, and the internal tensors that are
  // made at every execute (internal_places): those outlive their step.
  std::int64_t workspace_bytes() const;
  bool operator==(const Plan&) const = default;
};

// How many kernels a plan of this program has.
std::size_t kernel_count(const Program& program);

// Canonical text of program + target device + cuDNN version, and its hash.
Signature signature_of(const Program& program, const Target& target, std::int64_t cudnn_version);

// The `.attnplan` file (docs/plan-format.md) that holds this plan alone (several: bundle.h), in the
// lowest version that can hold it. The same plan gives the same bytes. The plan must be one that
// deserialize accepts: a valid program, a CompiledStep or kernel for each of its steps, the
// signature that signature_of gives, and parts within the format's limits.
std::string serialize(const Plan& plan);

// The file's plan of that direction. Errors: plan_foreign, plan_newer, plan_truncated,
// plan_damaged; invalid_argument when it has none of that direction or several (the note says what
// it has). Never reads past `bytes`, and never takes more memory than a small multiple of the
// format's limits, whatever the bytes are.
Result<Plan> deserialize(std::string_view bytes, Direction direction = Direction::forward);

// The manifest alone as JSON text (what `attnc inspect --format json` prints), no kernels inside.
std::string manifest_json(const Plan& plan);

// Atomic (temporary file in the same folder, then rename). Errors: io; load also those of
// deserialize.
Status save(const Plan& plan, const std::string& path);
Result<Plan> load(const std::string& path, Direction direction = Direction::forward);

}  // namespace attn::plan
