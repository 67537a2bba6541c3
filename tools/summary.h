// One-line summaries of output tensors.
#pragma once

#include <string>

#include "tools/execution.h"
#include "tools/report.h"

namespace attn::tools {

// A table: name, dtype, dims, mean and largest magnitude of the finite values (NaN if there are
// none), number of NaNs and infinities, first values.
std::string summary_text(const Outputs& outputs);

// {"o": {"dtype", "dims", "mean", "max_abs", "nan", "inf", "first"}}; values that JSON cannot
// represent are null.
Json summary_json(const Outputs& outputs);

}  // namespace attn::tools
