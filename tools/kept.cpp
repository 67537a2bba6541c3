#include "tools/kept.h"

#include <algorithm>

#include "tools/execution.h"

namespace attn::tools {
namespace {

using ir::Dim;

// v [B,Hkv,Skv,Dv] with row first + d set to 1 in column d, else 0.
io::HostTensor single_rows(const ir::Attention& attention, std::int64_t first) {
  const ir::Dims& d = attention.dims;
  io::HostTensor v{attention.dtype_of("v"), {d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dv]}, {}};
  const std::int64_t rows = d[Dim::Skv], width = d[Dim::Dv];
  v.values.assign(static_cast<std::size_t>(io::element_count(v.dims)), 0.0);
  for (std::int64_t head = 0; head < d[Dim::B] * d[Dim::Hkv]; ++head) {
    for (std::int64_t i = 0; i < std::min(width, rows - first); ++i) {
      v.values[static_cast<std::size_t>((head * rows + first + i) * width + i)] = 1;
    }
  }
  return v;
}

}  // namespace

bool has_unknown_numbers(const plan::Plan& plan, const ir::Attention& attention) {
  return attention.is_random() && !plan::steps_of<plan::CudnnStep>(plan.program).empty();
}

Result<io::HostTensor> kept_on_device(const plan::Plan& plan, const ir::Attention& attention,
                                      const reference::Inputs& inputs,
                                      const std::string& cudnn_folder) {
  const ir::Dims& d = attention.dims;
  const std::int64_t rows = d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
  const std::int64_t columns = d[Dim::Skv], width = d[Dim::Dv];
  io::HostTensor kept{DType::boolean, {d[Dim::B], d[Dim::Hq], d[Dim::Sq], columns}, {}};
  kept.values.assign(static_cast<std::size_t>(rows * columns), 0.0);
  reference::Inputs shown = inputs;
  for (std::int64_t first = 0; first < columns; first += width) {
    shown.tensors["v"] = single_rows(attention, first);
    ATTN_ASSIGN(const Outputs outputs, run_on_device(plan, shown, cudnn_folder));
    const std::vector<double>& o = outputs.at("o").values;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < std::min(width, columns - first); ++i) {
        const bool is_kept = o[static_cast<std::size_t>(row * width + i)] != 0;
        kept.values[static_cast<std::size_t>(row * columns + first + i)] = is_kept ? 1 : 0;
      }
    }
  }
  return kept;
}

ir::Attention with_kept(const ir::Attention& attention) {
  ir::Attention known = attention;
  const ir::Dims& d = attention.dims;
  ir::CapturedTensor tensor;
  tensor.name = kKept;
  tensor.dtype = DType::boolean;
  for (const Dim dim : {Dim::B, Dim::Hq, Dim::Sq, Dim::Skv}) {
    tensor.extents.push_back(known.dag.integer(d[dim]));
  }
  known.tensors.push_back(std::move(tensor));
  const std::vector<ir::ExprId> place{known.dag.leaf(ir::Op::batch_), known.dag.leaf(ir::Op::head_),
                                      known.dag.leaf(ir::Op::row_),
                                      known.dag.leaf(ir::Op::column_)};
  known.dropout->keep =
      known.dag.add_symbol(ir::Op::load_, kKept, ir::Type::boolean, place, known.dropout->pos);
  return known;
}

reference::Inputs with_kept(reference::Inputs inputs, io::HostTensor kept) {
  inputs.tensors[kKept] = std::move(kept);
  inputs.params.erase("seed");
  inputs.params.erase("offset");
  return inputs;
}

}  // namespace attn::tools
