#include "compiler/lowering/split.h"

#include "compiler/driver/lowerings.h"

namespace attn::driver::ways {

Result<plan::Program> split(const ir::Attention& attention) {
  return lowering::lower_split(attention);
}

}  // namespace attn::driver::ways
