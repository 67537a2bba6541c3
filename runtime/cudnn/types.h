// Converts enumerations to cuDNN's.
#pragma once

#include "runtime/base/dtype.h"
#include "runtime/cudnn/api.h"
#include "runtime/graph/backend_graph.h"

namespace attn::cudnn {

cudnnDataType_t to_cudnn(DType type);
cudnnPointwiseMode_t to_cudnn(graph::PointwiseMode mode);
cudnnReduceTensorOp_t to_cudnn(graph::ReduceOp op);

}  // namespace attn::cudnn
