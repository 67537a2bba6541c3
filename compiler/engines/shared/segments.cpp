#include "compiler/engines/shared/segments.h"

#include <algorithm>

#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/view.h"
#include "compiler/rewrite/pass.h"
#include "compiler/rewrite/ranged.h"
#include "compiler/rewrite/rebuild.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

constexpr std::int64_t kMostSequences = 65535;  // the limit of a grid dimension
constexpr std::int64_t kSegmentTile = 128;
// ms of the whole GPU for a tile of 128 rows without work
constexpr double kEmptyTile = 2.5e-6, kEmptyTileBackward = 5e-6;
constexpr std::size_t kSmallKernelSegments = 4;  // that find the segments and move their statistics

class SegmentFinder {
 public:
  explicit SegmentFinder(const ir::Attention& attention)
      : attention_(attention), dag_(attention.dag) {}

  std::optional<Segments> run() const {
    const ir::Dims& d = attention_.dims;
    if (!d.bound() || d[Dim::Sq] != d[Dim::Skv] || d[Dim::Sq] < 2 || has_other_lengths()) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < attention_.masks.size(); ++i) {
      std::optional<Segments> found = told_by(attention_.masks[i]);
      if (!found || !is_same_in_all_but(i)) continue;
      found->blocks = as_blocks(*found, i);
      return with_attention(std::move(*found), i);
    }
    return std::nullopt;
  }

 private:
  bool has_other_lengths() const {
    const bool drops_at_random = attention_.dropout && !attention_.dropout->keep;
    return attention_.lengths_q || attention_.lengths_kv || drops_at_random;
  }

  // Facts about the tensor, if the mask compares its elements at row and column.
  std::optional<Segments> told_by(ExprId mask) const {
    const Node& node = dag_[mask];
    if (!node.is(Op::eq_)) return std::nullopt;
    const Node &x = dag_[node.operands[0]], &y = dag_[node.operands[1]];
    if (!x.is(Op::load_) || !y.is(Op::load_) || x.attribute != y.attribute) return std::nullopt;
    const bool sides = (is_read_by(x, Op::row_) && is_read_by(y, Op::column_)) ||
                       (is_read_by(x, Op::column_) && is_read_by(y, Op::row_));
    const ir::CapturedTensor& tensor = *attention_.find_tensor(std::get<std::string>(x.attribute));
    if (!sides || x.operands.size() != y.operands.size()) return std::nullopt;
    return facts_of(tensor);
  }

  // [b, index] or [index]
  bool is_read_by(const Node& load, Op index) const {
    if (load.operands.empty() || load.operands.size() > 2) return false;
    if (!dag_[load.operands.back()].is(index)) return false;
    return load.operands.size() == 1 || dag_[load.operands.front()].is(Op::batch_);
  }

  std::optional<Segments> facts_of(const ir::CapturedTensor& tensor) const {
    const bool counts = tensor.dtype == DType::i32 || tensor.dtype == DType::i64;
    if (!counts || !tensor.monotone || !tensor.runs) return std::nullopt;
    const ir::Dims& d = attention_.dims;
    const auto size = [&](ExprId id) { return *ir::fold_integer(dag_, id, d); };
    const bool by_batch = tensor.extents.size() == 2;
    if (size(tensor.extents.back()) != d[Dim::Sq]) return std::nullopt;
    if (by_batch && size(tensor.extents.front()) != d[Dim::B]) return std::nullopt;
    Segments found{.tensor = tensor.name, .by_batch = by_batch, .attention = {}};
    found.most = std::min(size(*tensor.runs), d[Dim::Sq]);
    found.longest = d[Dim::Sq];
    if (tensor.longest_run) found.longest = std::min(found.longest, size(*tensor.longest_run));
    const bool fits = found.longest > 1 && found.most * found.longest >= d[Dim::Sq] &&
                      found.most * d[Dim::B] <= kMostSequences;
    return fits ? std::optional(std::move(found)) : std::nullopt;
  }

  bool is_same_in_all_but(std::size_t mask) const {
    const auto same = [this](ExprId id) { return change_of(attention_, id, 1, 1) == 0; };
    for (std::size_t i = 0; i < attention_.masks.size(); ++i) {
      if (i != mask && !same(attention_.masks[i])) return false;
    }
    return same(attention_.score) && (!attention_.dropout || same(*attention_.dropout->keep));
  }

  std::optional<ir::Attention> as_blocks(const Segments& found, std::size_t mask) const {
    if (found.most * found.longest != attention_.dims[Dim::Sq]) return std::nullopt;
    ir::Attention blocks = attention_;
    const ir::SourcePos pos = dag_[attention_.masks[mask]].pos;
    const auto block = [&](Op index) {
      const ExprId size = blocks.dag.integer(found.longest, pos);
      return blocks.dag.add(Op::floordiv_, {blocks.dag.leaf(index, pos), size}, pos);
    };
    blocks.masks[mask] = blocks.dag.add(Op::eq_, {block(Op::row_), block(Op::column_)}, pos);
    return blocks;
  }

  Segments with_attention(Segments found, std::size_t mask) const {
    ir::Attention rest = attention_;
    rest.masks.erase(rest.masks.begin() + static_cast<std::ptrdiff_t>(mask));
    const std::int64_t most = found.most;
    ir::Attention each = rewrite::rebuilt(
        rest,
        [&](rewrite::SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
            const std::vector<ExprId>&) -> std::optional<ExprId> {
          const Node& node = rest.dag[id];
          if (!node.is(Op::batch_)) return std::nullopt;
          const ExprId number = dag.leaf(Op::batch_, node.pos);
          return builder.make(Op::floordiv_, {number, dag.integer(most, node.pos)}, node.pos);
        });
    each.dims.set(Dim::B, attention_.dims[Dim::B] * most);
    each.dims.set(Dim::Sq, found.longest);
    each.dims.set(Dim::Skv, found.longest);
    each.align = ir::Align::top_left;
    found.attention = rewrite::run_pass("ranges", each);
    return found;
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
};

std::int64_t tiles(std::int64_t rows) { return (rows + kSegmentTile - 1) / kSegmentTile; }

}  // namespace

std::optional<Segments> segments(const ir::Attention& attention) {
  return SegmentFinder(attention).run();
}

double predicted_ms(const Segments& segments, std::int64_t rows, const target::Context& context) {
  const std::int64_t equal = std::min((rows + segments.most - 1) / segments.most, segments.longest);
  ir::Attention each = segments.attention;
  each.dims.set(Dim::Sq, equal);
  each.dims.set(Dim::Skv, equal);
  const ir::Dims& d = each.dims;
  const auto empty =
      static_cast<double>(d[Dim::B] * d[Dim::Hq] * (tiles(segments.longest) - tiles(equal)));
  return predicted_ms(rewrite::kernel_form(each, context), context) +
         empty * (context.backward() ? kEmptyTileBackward : kEmptyTile) *
             scalar_slowdown(context.gpu) +
         kSmallKernelSegments * predicted_ms_of_moving(0, context.gpu);
}

}  // namespace attn::engines
