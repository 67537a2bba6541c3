// What outputs look like, in a line each.
#pragma once

#include <string>

#include "tools/execution.h"
#include "tools/report.h"

namespace attn::tools {

// A table: name, dtype, dims, mean and largest magnitude of the finite values (NaN when there are
// none), how many are NaN and infinite, the first values.
std::string summary_text(const Outputs& outputs);

// {"o": {"dtype", "dims", "mean", "max_abs", "nan", "inf", "first"}}; null stands for
// what JSON has no number for.
Json summary_json(const Outputs& outputs);

}  // namespace attn::tools
