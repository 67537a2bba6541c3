// Diagnostics as JSON, for those who print them as a part of more.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "compiler/diag/diagnostics.h"

namespace attn::diag {

// What to_json(sink) is the text of. File names may not be UTF-8.
nlohmann::ordered_json json_of(const Sink& sink);

}  // namespace attn::diag
