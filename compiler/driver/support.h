// Whether a target supports an attention, according to rules, cuDNN's heuristics, or a full
// compile.
#pragma once

#include <optional>
#include <string_view>

#include "compiler/driver/driver.h"

namespace attn::driver {

// How thorough the check is. Each tier is more reliable and more expensive than the one before.
// Rules take milliseconds (seconds for a mask at the work limit) and no cuDNN; heuristics take a
// worker process, about 0.2 s; a build compiles.
enum class Tier : std::uint8_t { rules, heuristics, build };
std::string_view to_string(Tier tier);
std::optional<Tier> parse_tier(std::string_view text);

struct Verdict {
  enum class Outcome : std::uint8_t { served, refused, failed };
  Outcome outcome = Outcome::served;
  Tier tier = Tier::rules;  // the tier that decided
  std::string lowering;     // the strategy that serves it; with rules, one that may
  std::vector<std::string> other_engines{};  // that can express it too, by rules alone
  std::size_t steps = 0;                     // of the program, if there is one
  std::int64_t engine = -1;                  // of the first cuDNN step, from heuristics on
  std::int64_t workspace_bytes = 0;          // besides the tensors; after a build
  std::int64_t cudnn_version = 0;            // from heuristics on
  std::optional<Error> error{};              // of a refusal (unsupported) or failure
  // The direction of this verdict, for a training pair.
  std::optional<plan::Direction> direction{};
};

// Checks at `tier`. The rules are always checked first; if they refuse, that is the verdict.
Verdict judge(const ir::Attention& attention, const support::Source& source,
              const sema::Bindings& bindings, const CompileOptions& options, Tier tier);

// The same for Tier::rules, which needs no source text and no worker.
Verdict judge_by_rules(const ir::Attention& attention, const CompileOptions& options);

// Checks both directions of a training pair (training_forward), ignoring options.direction. Returns
// the verdict on the forward if it is not served, else on the backward.
Verdict judge_pair(const ir::Attention& attention, const support::Source& source,
                   const sema::Bindings& bindings, const CompileOptions& options, Tier tier);

// The reason of a refusal in one line, with what would work if known. For a refusal by cuDNN, the
// reason against its first config, translated if reasons.def has an entry for it.
std::string reason_of(const Error& error);

}  // namespace attn::driver
