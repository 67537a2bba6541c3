#include "compiler/sema/blocks.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "compiler/ir/block_scales.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Dim;
using ir::ExprId;
using ir::LayoutKind;
using ir::Op;
using support::quoted;

template <typename Body>
const ast::Clause* find(const ast::Spec& spec) {
  for (const ast::Clause& clause : spec.clauses) {
    if (std::holds_alternative<Body>(clause.body)) return &clause;
  }
  return nullptr;
}

void check_depth(const ast::Clause& quantize, const ir::Attention& attention, diag::Sink& sink) {
  for (const Dim dim : {Dim::Dqk, Dim::Dv}) {
    const auto size = attention.dims.get(dim);
    if (!size || *size % ir::kBlock == 0) continue;
    const bool both = attention.dims.get(Dim::Dqk) == attention.dims.get(Dim::Dv);
    sink.report(Code::not_in_blocks, quantize.keyword.span,
                fmt::format("{} is {}, which blocks of {} elements do not divide",
                            both ? "D" : to_string(dim), *size, ir::kBlock))
        .help = fmt::format("use a multiple of {}", ir::kBlock);
    if (both) return;
  }
}

// Blocks along the rows, and tiles of scales, begin with each sequence.
void check_layouts(const ast::Spec& spec, const ast::Clause& quantize,
                   const ir::Attention& attention, diag::Sink& sink) {
  const ast::Clause* layout = find<ast::LayoutClause>(spec);
  for (const auto& [name, of] : attention.layouts) {
    const bool dense =
        of.kind == LayoutKind::bshd || of.kind == LayoutKind::bhsd || of.kind == LayoutKind::sbhd;
    if (dense) continue;
    sink.report(
            Code::bad_layout, (layout != nullptr ? layout : &quantize)->keyword.span,
            fmt::format("{} is {}, and with `mxfp8` each sequence needs rows of its own, for the "
                        "scales of blocks of {} rows",
                        quoted(name), quoted(to_string(of.kind)), ir::kBlock))
        .help = "use `bshd`, `bhsd` or `sbhd`, with `lengths` if sequences differ";
    return;
  }
}

void check_outputs(const ast::Spec& spec, diag::Sink& sink) {
  const ast::Clause* clause = find<ast::OutputsClause>(spec);
  if (clause == nullptr) return;
  for (const ast::Name& name : std::get<ast::OutputsClause>(clause->body).outputs) {
    if (name.text != "amax_s") continue;
    sink.report(Code::not_available_here, name.span,
                "`amax_s` is not available beside `quantize mxfp8`")
        .help = "weights have no scale that could depend on it; `amax_o` is available";
  }
}

class Declaring {
 public:
  explicit Declaring(ir::Attention& attention) : attention_(attention), dag_(attention.dag) {}

  void scale(const ir::BlockScale& scale) {
    const auto [heads, rows, depth] = dims_of(scale.of);
    const auto blocks = [&](Dim dim) {
      return up_to(ir::kTileBlocks, up_to(ir::kBlock, size(dim), true), false);
    };
    const auto elements = [&](Dim dim) { return up_to(ir::kTileElements, size(dim), false); };
    ir::CapturedTensor tensor{
        std::string(scale.name),
        DType::e8m0,
        {size(Dim::B), size(heads), scale.along_rows ? blocks(rows) : elements(rows),
         scale.along_rows ? elements(depth) : blocks(depth)},
        {}};
    tensor.fallback = dag_.real(1.0);
    attention_.tensors.push_back(std::move(tensor));
  }

  // Adds a copy, in the order of the layout of what it copies.
  void copy(const ir::Copy& copy) {
    const auto [heads, rows, depth] = dims_of(copy.of);
    const std::string_view owner = copy.of == "do" ? "o" : copy.of;
    const ExprId b = size(Dim::B), h = size(heads), s = size(rows), d = size(depth);
    std::vector<ExprId> extents = {b, s, h, d};
    const LayoutKind kind = attention_.layouts.find(owner)->second.kind;
    if (kind == LayoutKind::bhsd) extents = {b, h, s, d};
    if (kind == LayoutKind::sbhd) extents = {s, b, h, d};
    const DType dtype = attention_.dtype_of(copy.is_narrow ? copy.of : "o");
    attention_.tensors.push_back({std::string(copy.name), dtype, std::move(extents), {}});
  }

 private:
  struct Axes {
    Dim heads, rows, depth;
  };
  // Dimensions of q, k, v or do, or of a copy of them.
  static Axes dims_of(std::string_view name) {
    if (name.starts_with('q')) return {Dim::Hq, Dim::Sq, Dim::Dqk};
    if (name.starts_with('k')) return {Dim::Hkv, Dim::Skv, Dim::Dqk};
    if (name.starts_with('v')) return {Dim::Hkv, Dim::Skv, Dim::Dv};
    return {Dim::Hq, Dim::Sq, Dim::Dv};
  }

  ExprId size(Dim dim) {
    const auto known = attention_.dims.get(dim);
    return known ? dag_.integer(*known) : dag_.dim(std::string(to_string(dim)));
  }

  // `of`, rounded up to a multiple; or how often that has the multiple.
  ExprId up_to(std::int64_t multiple, ExprId of, bool counts) {
    const ExprId by = dag_.integer(multiple);
    if (const auto known = ir::fold_integer(dag_, of)) {
      const std::int64_t count = (*known + multiple - 1) / multiple;
      return dag_.integer(counts ? count : count * multiple);
    }
    const ExprId more = dag_.add(Op::add_, {of, dag_.integer(multiple - 1)});
    const ExprId count = dag_.add(Op::floordiv_, {more, by});
    return counts ? count : dag_.add(Op::mul_, {count, by});
  }

  ir::Attention& attention_;
  ir::Dag& dag_;
};

}  // namespace

void check_blocks(const ast::Spec& spec, const ast::Clause& quantize,
                  const ir::Attention& attention, diag::Sink& sink) {
  check_depth(quantize, attention, sink);
  check_layouts(spec, quantize, attention, sink);
  check_outputs(spec, sink);
}

void declare_blocks(bool trains, ir::Attention& attention) {
  Declaring declaring(attention);
  for (const ir::BlockScale& scale : ir::kBlockScales) {
    if (trains || !scale.backward) declaring.scale(scale);
  }
  for (const ir::Copy& copy : ir::kCopies) {
    if (trains) declaring.copy(copy);
  }
}

}  // namespace attn::sema
