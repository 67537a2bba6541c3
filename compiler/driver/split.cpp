#include "compiler/lowering/split.h"

#include "compiler/driver/lowerings.h"
#include "compiler/lowering/unsupported.h"

namespace attn::driver::ways {

Result<plan::Program> split(const ir::Attention& attention) {
  return lowering::lower_split(attention);
}

Result<plan::Program> split_backward(const ir::Attention& attention) {
  return lowering::unsupported(attention.pos, "the split lowering has no backward");
}

}  // namespace attn::driver::ways
