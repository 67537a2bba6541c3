// What the kernels of the engine `native` take, predicted: to choose between them and cuDNN's.
//
// A block of threads computes its tiles one after another. A score costs its products, and the
// operations that its modification and its masks take; a tile has a fixed cost, and the last one
// leaves multiprocessors idle. Where keys and values take longer to be read, their bytes count:
// from memory, from the L2 cache where tiles share them, and those of the longest tile; where pages
// are small, the copies; and where keys are divided, what merges the parts. Figures are those of
// target/figures.def, measured on an H200, and are scaled to other GPUs.
#pragma once

#include "compiler/engines/native/programs.h"
#include "compiler/engines/shared/subject.h"

namespace attn::engines {

// Milliseconds of one execute. Lists that the GPU makes are taken to show what cuDNN's strategies
// assume of the same masks: segments of equal length, and kAssumedShare of blocks.
double predicted_ms_of_native(Subject& subject, const NativeWork& work);

}  // namespace attn::engines
