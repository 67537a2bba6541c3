// Parses cuDNN's text of a thread's last errors. It comes in blocks, one for each engine config
// that was considered, with the deepest and most specific reason first:
//
//   {"engineId":2,"smVersion":900,"knobChoices":{"CUDNN_KNOB_TYPE_KERNEL_CFG":7}}
//   Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: Embedding dim ... at: d_qk % 8 != 0
//   Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: ptr->isSupported()
//
// The first line is missing if the failing call was not about a config.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cudnn/api.h"
#include "runtime/plan/plan.h"

namespace attn::cudnn {

// An engine and its knobs, as chosen by heuristics.
struct EngineChoice {
  std::int64_t engine = -1;       // -1: unknown
  std::vector<plan::Knob> knobs;  // ascending type
};

struct LastWords {
  EngineChoice choice;
  std::string status;  // "NOT_SUPPORTED_SHAPE"
  std::string reason;  // one line
};

// The error text since the last call of this function on this thread. cuDNN then drops the text.
std::string take_last_text(const Api& api);

// Text in another form becomes one entry, with an empty status and the whole text as the reason.
std::vector<LastWords> parse_last_words(std::string_view text);

}  // namespace attn::cudnn
