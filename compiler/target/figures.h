// Figures of predicted times, fitted to the table of what was measured (bench/fit.py).
#pragma once

namespace attn::target {

// Figures of the H200, on which they were measured; predictions for other GPUs are scaled (gpu.h).
struct Figures {
#define ATTN_FIGURE(name, what) double name = 0;
#include "compiler/target/figures.def"
};

}  // namespace attn::target
