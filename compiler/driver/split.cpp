#include "compiler/lowering/split.h"

#include "compiler/driver/lowerings.h"
#include "compiler/lowering/split_backward.h"

namespace attn::driver::ways {

Result<plan::Program> split(const ir::Attention& attention) {
  return lowering::lower_split(attention);
}

Result<plan::Program> split_backward(const ir::Attention& attention) {
  return lowering::lower_split_backward(attention);
}

}  // namespace attn::driver::ways
