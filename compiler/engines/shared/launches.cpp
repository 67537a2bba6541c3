#include "compiler/engines/shared/launches.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/rewrite/rebuild.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

constexpr std::array kOperands = {"q", "k", "v", "o"};

bool is_of_rows(std::string_view operand) { return operand == "q" || operand == "o"; }

class Placer {
 public:
  Placer(const ir::Attention& whole, const Part& part) : whole_(whole), part_(part) {}

  std::vector<Launch> run() const {
    if (part_.view.classes == 1) return {launch(part_.view, Fold::none)};
    for (const Fold fold : {Fold::batch, Fold::heads, Fold::inner_heads}) {
      if (fits(fold)) return {launch(part_.view, fold)};
    }
    std::vector<Launch> separate;
    for (std::int64_t c = 0; c < part_.view.classes && c <= kMostLaunches; ++c) {
      View view = part_.view;
      view.classes = 1;
      for (Stretch* stretch : {&view.rows, &view.columns}) {
        stretch->begin = stretch->index(c, 0);
        stretch->shift = 0;
      }
      separate.push_back(launch(view, Fold::none));
    }
    return separate;
  }

 private:
  const Stretch& stretch(const View& view, std::string_view operand) const {
    return is_of_rows(operand) ? view.rows : view.columns;
  }

  bool fits(Fold fold) const {
    if (fold == Fold::inner_heads && whole_.dims[Dim::Hq] != whole_.dims[Dim::Hkv]) return false;
    for (const char* operand : kOperands) {
      if (!strides(part_.view, fold, operand)) return false;
    }
    return true;
  }

  // The strides of an operand; nothing if the classes are not laid out as the fold requires.
  std::optional<Dims4> strides(const View& view, Fold fold, const char* operand) const {
    const Dims4 dims = stored_dims(whole_, operand);
    Dims4 strides = stored_strides(whole_, operand);
    const Stretch& along = stretch(view, operand);
    const std::int64_t shift = along.shift * strides[2];
    strides[2] *= along.step;
    switch (fold) {
      case Fold::none: return strides;
      case Fold::batch:
        if (dims[0] > 1 && strides[0] != view.classes * shift) return std::nullopt;
        strides[0] = shift;
        return strides;
      case Fold::heads:
        if (dims[1] > 1 && strides[1] * dims[1] != shift) return std::nullopt;
        if (dims[1] == 1) strides[1] = shift;
        return strides;
      case Fold::inner_heads:
        if (dims[1] > 1 && strides[1] != view.classes * shift) return std::nullopt;
        strides[1] = shift;
        return strides;
    }
    return std::nullopt;
  }

  Launch launch(const View& view, Fold fold) const {
    Launch launch{view, fold, folded(view.classes, fold), {}};
    for (const char* operand : kOperands) {
      ir::Layout& layout = launch.attention.layouts[operand];
      layout = {};
      layout.kind = ir::LayoutKind::strided;
      layout.strides = *strides(view, fold, operand);
      launch.offsets[operand] = stretch(view, operand).begin * stored_strides(whole_, operand)[2];
    }
    return launch;
  }

  // The part's attention with the kernel's batches and heads.
  ir::Attention folded(std::int64_t classes, Fold fold) const {
    if (fold == Fold::none) return part_.attention;
    const ir::Dims& dims = whole_.dims;
    const bool by_batch = fold == Fold::batch;
    const Op leaf = by_batch ? Op::batch_ : Op::head_;
    const Op operation = fold == Fold::heads ? Op::mod_ : Op::floordiv_;
    const std::int64_t by = fold == Fold::heads ? dims[Dim::Hq] : classes;
    ir::Attention folded = rewrite::rebuilt(
        part_.attention,
        [&](rewrite::SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
            const std::vector<ExprId>&) -> std::optional<ExprId> {
          const ir::Node& node = part_.attention.dag[id];
          if (!node.is(leaf)) return std::nullopt;
          return builder.make(operation, {dag.leaf(leaf, node.pos), dag.integer(by, node.pos)},
                              node.pos);
        });
    if (by_batch) folded.dims.set(Dim::B, dims[Dim::B] * classes);
    if (!by_batch) folded.dims.set(Dim::Hq, dims[Dim::Hq] * classes);
    if (!by_batch) folded.dims.set(Dim::Hkv, dims[Dim::Hkv] * classes);
    return folded;
  }

  const ir::Attention& whole_;
  const Part& part_;
};

// Strides that are not multiples of 16 bytes are read through copies, but a single row has none.
Status check_alignment(const Launch& launch) {
  for (const char* operand : kOperands) {
    if (is_staged(launch.attention, operand)) continue;
    if (launch.offsets.find(operand)->second % kVector == 0) continue;
    return unsupported(
        launch.attention.pos,
        fmt::format("a part of `{}` does not begin at a multiple of 16 bytes", operand));
  }
  return {};
}

}  // namespace

Result<std::vector<Launch>> launches(const ir::Attention& whole, const std::vector<Part>& parts) {
  for (const char* operand : kOperands) {
    const ir::LayoutKind kind = layout_of(whole, operand).kind;
    if (kind != ir::LayoutKind::paged && kind != ir::LayoutKind::thd) continue;
    return unsupported(whole.pos, "the rows of paged and thd tensors are not contiguous");
  }
  std::vector<Launch> all;
  for (const Part& part : parts) {
    for (Launch& launch : Placer(whole, part).run()) {
      ATTN_RETURN_IF_ERROR(check_alignment(launch));
      all.push_back(std::move(launch));
    }
  }
  if (all.size() > kMostLaunches) {
    return unsupported(whole.pos, "the layouts would need too many kernels, one per class");
  }
  return all;
}

}  // namespace attn::engines
