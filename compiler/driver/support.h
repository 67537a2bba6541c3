// Whether an attention can be served by a target: asked of rules, of cuDNN's heuristics, or of the
// compiler itself.
#pragma once

#include <optional>
#include <string_view>

#include "compiler/driver/driver.h"

namespace attn::driver {

// How far to ask. Each is surer than the one before, and dearer: rules take milliseconds, of a
// mask that takes more work than is done some seconds, and no cuDNN; heuristics a worker process of
// about 0.2 s; a build what compiling takes.
enum class Tier : std::uint8_t { rules, heuristics, build };
std::string_view to_string(Tier tier);
std::optional<Tier> parse_tier(std::string_view text);

struct Verdict {
  enum class Outcome : std::uint8_t { served, refused, failed };
  Outcome outcome = Outcome::served;
  Tier tier = Tier::rules;           // that decided
  std::string lowering;              // that serves it; of the rules, one that may
  std::size_t steps = 0;             // of the program, when there is one
  std::int64_t engine = -1;          // of the first cuDNN step, from heuristics on
  std::int64_t workspace_bytes = 0;  // beside the tensors, after a build
  std::int64_t cudnn_version = 0;    // from heuristics on
  std::optional<Error> error{};      // of a refusal (unsupported) or failure
  // Of a training pair: the direction that all this is about.
  std::optional<plan::Direction> direction{};
};

// Asks at `tier`; a refusal by the rules, which are always asked first, decides.
Verdict judge(const ir::Attention& attention, const support::Source& source,
              const sema::Bindings& bindings, const CompileOptions& options, Tier tier);

// Both directions of a training pair (training_forward), options.direction ignored: the verdict on
// the forward when it is not served, else that on the backward.
Verdict judge_pair(const ir::Attention& attention, const support::Source& source,
                   const sema::Bindings& bindings, const CompileOptions& options, Tier tier);

// One line: why not, with what would work where that is known. Of what cuDNN refused it is the
// reason of the config that it would have tried first, translated where its words are known.
std::string reason_of(const Error& error);

}  // namespace attn::driver
