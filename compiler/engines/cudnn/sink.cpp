#include "compiler/engines/cudnn/sink.h"

#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/engines/shared/unsupported.h"

namespace attn::engines {

Result<std::optional<Uid>> sink_operand(const ir::Attention& attention, GraphBuilder& builder) {
  if (!attention.sink) return std::optional<Uid>();
  const ir::Node& node = attention.dag[*attention.sink];
  const bool by_head = node.is(ir::Op::load_) && node.operands.size() == 1 &&
                       attention.dag[node.operands[0]].is(ir::Op::head_);
  if (!by_head) {
    return unsupported(node.pos, "cuDNN requires the sink to be a tensor with one value per head",
                       "declare `tensor sinks: f32[Hq];` and write `sink sinks[h];`");
  }
  ATTN_ASSIGN(const CapturedView view, captured_view(attention, *attention.sink));
  const std::string& name = attention.dag.symbol_of(*attention.sink);
  return std::optional(builder.add_tensor(name, view.dtype, view.dims, view.strides));
}

}  // namespace attn::engines
