// cuDNN's text of the last errors of a thread, taken apart. It comes in blocks, one for each engine
// config that was looked at, the deepest and most telling reason first:
//
//   {"engineId":2,"smVersion":900,"knobChoices":{"CUDNN_KNOB_TYPE_KERNEL_CFG":7}}
//   Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: Embedding dim ... at: d_qk % 8 != 0
//   Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: ptr->isSupported()
//
// The first line is missing when the failing call was about no config.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cudnn/api.h"
#include "runtime/plan/plan.h"

namespace attn::cudnn {

// An engine and its knobs, as heuristics choose them.
struct EngineChoice {
  std::int64_t engine = -1;       // -1: not known
  std::vector<plan::Knob> knobs;  // ascending type
};

struct LastWords {
  EngineChoice choice;
  std::string status;  // "NOT_SUPPORTED_SHAPE"
  std::string reason;  // one line
};

// Everything since the last call of this function on this thread: cuDNN forgets what it has told.
std::string take_last_text(const Api& api);

// Text in another form becomes one entry with an empty status and all of it as the reason.
std::vector<LastWords> parse_last_words(std::string_view text);

}  // namespace attn::cudnn
