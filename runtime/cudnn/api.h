// cuDNN's entry points as a table of pointers, filled by Library::load. The only header of this
// directory that includes cuDNN's.
#pragma once

#include <cudnn_graph.h>

namespace attn::cudnn {

struct Api {
#define ATTN_CUDNN_FUNCTION(name) decltype(&::name) name = nullptr;
#include "runtime/cudnn/functions.def"
#undef ATTN_CUDNN_FUNCTION
};

}  // namespace attn::cudnn
