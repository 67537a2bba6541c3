#include "compiler/engines/cudnn/captured_view.h"

#include <fmt/core.h>

#include "compiler/engines/shared/unsupported.h"
#include "compiler/rewrite/pass.h"

namespace attn::engines {
namespace {

using ir::Op;

// The score axis that an index expression names, or -1.
int dimension_of(Op op) {
  switch (op) {
    case Op::batch_: return 0;
    case Op::head_: return 1;
    case Op::row_: return 2;
    case Op::column_: return 3;
    default: return -1;
  }
}

Status check_dtype(const ir::CapturedTensor& tensor, ir::SourcePos pos) {
  switch (tensor.dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::i32: return {};
    default:
      return unsupported(
          pos,
          fmt::format("cuDNN cannot read captured tensor `{}` of dtype {}", tensor.name,
                      to_string(tensor.dtype)),
          tensor.dtype == DType::boolean
              ? fmt::format("declare `{0}` as i32 and write `{0}[..] != 0`", tensor.name)
              : "supported: f16, bf16, f32 and i32");
  }
}

// Row-major strides of the declared tensor.
std::vector<std::int64_t> declared_strides(const std::vector<std::int64_t>& extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

struct Axes {
  std::array<int, 4> index{-1, -1, -1, -1};  // declared axis that each score axis indexes
};

Result<Axes> match_axes(const ir::Attention& attention, const ir::Node& load,
                        const std::vector<std::int64_t>& extents, const Dims4& scores) {
  const std::string& name = std::get<std::string>(load.attribute);
  Axes axes;
  for (std::size_t i = 0; i < load.operands.size(); ++i) {
    const ir::ExprId index = load.operands[i];
    const ir::Node& node = attention.dag[index];
    const int axis = dimension_of(node.op);
    if (axis < 0) {
      if (extents[i] == 1 && ir::fold_integer(attention.dag, index) == 0) continue;
      return unsupported(node.pos,
                         fmt::format("cuDNN does not support index `{}` of `{}`",
                                     ir::to_source(attention.dag, index), name),
                         "each index must be b, h, kv_idx or the row number (q_idx under "
                         "`align top_left`, else q_raw)");
    }
    const auto slot = static_cast<std::size_t>(axis);
    if (axes.index[slot] >= 0) {
      return unsupported(node.pos, fmt::format("`{}` is indexed twice by `{}`", name,
                                               ir::to_source(attention.dag, index)));
    }
    if (extents[i] < scores[slot]) {  // guarded, or the spec would have been refused
      return unsupported(load.pos, fmt::format("`{}` has extent {} but is indexed up to {}", name,
                                               extents[i], scores[slot] - 1));
    }
    axes.index[slot] = static_cast<int>(i);
  }
  return axes;
}

Status check_shape(const ir::Node& load, const Axes& axes, const Dims4& scores,
                   const CapturedView& view) {
  const std::string& name = std::get<std::string>(load.attribute);
  const bool by_row = axes.index[2] >= 0, by_column = axes.index[3] >= 0;
  const bool single_row = scores[2] == 1;
  if (by_column && (by_row || single_row) && view.dims[3] > 1 && view.strides[3] != 1) {
    return unsupported(load.pos,
                       fmt::format("the kv dimension of `{}` must be its last: cuDNN's kernel "
                                   "fails on other orders",
                                   name),
                       "transpose the tensor");
  }
  if (view.dims[0] > 1 && view.dims[1] > 1 && view.dims[2] == 1 && view.dims[3] == 1) {
    return unsupported(load.pos,
                       fmt::format("`{}` varies with the batch and the head but not with columns, "
                                   "and Sq is 1: cuDNN computes wrong values for such an operand",
                                   name),
                       fmt::format("give `{}` another dimension: [.., Skv]", name));
  }
  return {};
}

// cuDNN 9.19 silently computes wrong values for an operand that varies with the batch but with
// neither rows nor columns. Repeating the element for every row is correct. (The engine for a
// single row is correct unless the operand also varies with the head.)
void repeat_batch_values(const Dims4& scores, CapturedView& view) {
  if (view.dims[0] == 1 || view.dims[2] > 1 || view.dims[3] > 1) return;
  view.dims[2] = scores[2];
  view.strides[2] = 0;
}

}  // namespace

Result<CapturedView> captured_view(const ir::Attention& attention, ir::ExprId load_id) {
  const ir::Node& load = attention.dag[load_id];
  const ir::CapturedTensor& tensor = *attention.find_tensor(attention.dag.symbol_of(load_id));
  ATTN_RETURN_IF_ERROR(check_dtype(tensor, load.pos));
  std::vector<std::int64_t> extents;
  for (const ir::ExprId extent : tensor.extents) {
    extents.push_back(*ir::fold_integer(attention.dag, extent));
  }
  const auto& dims = attention.dims;
  const Dims4 scores{dims[ir::Dim::B], dims[ir::Dim::Hq], dims[ir::Dim::Sq], dims[ir::Dim::Skv]};
  ATTN_ASSIGN(const Axes axes, match_axes(attention, load, extents, scores));
  CapturedView view{tensor.dtype, {1, 1, 1, 1}, {}};
  for (std::size_t i = 0; i < 4; ++i) {
    if (axes.index[i] >= 0) view.dims[i] = scores[i];
  }
  view.strides = packed_strides(view.dims);
  const std::vector<std::int64_t> strides = declared_strides(extents);
  for (std::size_t i = 0; i < 4; ++i) {
    if (axes.index[i] >= 0) view.strides[i] = strides[static_cast<std::size_t>(axes.index[i])];
  }
  repeat_batch_values(scores, view);
  ATTN_RETURN_IF_ERROR(check_shape(load, axes, scores, view));
  return view;
}

CapturedView read_by_rows(CapturedView view, const Dims4& scores) {
  if (view.dims[2] > 1 || view.dims[3] == 1) return view;
  view.dims[2] = scores[2];
  view.strides[2] = 0;
  return view;
}

Result<rewrite::Hoisted> hoisted(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                 const target::Context& context, bool vectors) {
  rewrite::HoistOptions options;
  options.vectors = vectors;
  if (context.backward()) {
    options.worth_vector = rewrite::kWorthVectorBackward;
    options.reading = rewrite::kReadingBackward;
  }
  options.extra = std::move(extra);
  options.readable = [](const ir::Attention& of, ir::ExprId load) {
    return captured_view(of, load).status();
  };
  return rewrite::run_pass("hoist", context,
                           [&] { return rewrite::hoist(attention, options, context); });
}

}  // namespace attn::engines
