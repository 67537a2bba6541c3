#include "compiler/passes/strategy/cost.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/passes/analysis/axes.h"
#include "compiler/passes/analysis/mask_analysis.h"
#include "compiler/passes/rewrite/hoist.h"
#include "compiler/planning/capabilities.h"

namespace attn::passes {
namespace {

using ir::Dim;

constexpr std::int64_t kTile = 128;
constexpr double kLaunch = 0.004;             // ms
constexpr double kBytesInAMillisecond = 3e9;  // read and written, on the H200
const planning::Gpu kH200;                    // where the constants were measured

// In ms, of one SM: for a score with both head dimensions 128, of which a part does not depend on
// them, for an operation (hoist.h) on a score, and for 128 rows.
struct Rates {
  double score, fixed_part, operation, rows;
};
constexpr double kProcessors = 132;  // of the H200
constexpr double kPico = 1e-9 * kProcessors;
constexpr Rates kForward = {0.745 * kPico, 0.35, 0.03 * kPico, 13.6e-6 * kProcessors};
constexpr Rates kBackward = {2.25 * kPico, 0.2, 0.06 * kPico, 107e-6 * kProcessors};

// How many times as long an SM of the GPU takes as one of the H200.
struct Scale {
  double matrix, lanes, clock;
};
Scale scale_of(const planning::Gpu& gpu) {
  const auto per_sm = [](const planning::Gpu& of) { return of.matrix_rate / of.multiprocessors; };
  return {per_sm(kH200) / per_sm(gpu), kH200.clock * kH200.lanes / (gpu.clock * gpu.lanes),
          kH200.clock / gpu.clock};
}

Rates rates_of(const planning::Context& context) {
  Rates rates = context.backward() ? kBackward : kForward;
  const Scale scale = scale_of(context.gpu);
  rates.score *= std::max(scale.matrix, scale.lanes);
  rates.operation *= scale.lanes;
  rates.rows *= scale.clock;
  return rates;
}

// What a kernel does for each score, once what costs more than reading it is hoisted (hoist.h).
class Operations {
 public:
  Operations(const ir::Attention& attention, const Reading& reading)
      : attention_(attention), reading_(reading), dependence_(attention.dag) {}

  double of_attention(const MaskAnalysis& mask) {
    const double masks = sum(mask.form().residual);
    return std::min(masks, reading_.narrow_table) + sum({attention_.score});
  }

 private:
  double sum(const std::vector<ir::ExprId>& roots) {
    double sum = 0;
    for (const ir::ExprId root : roots) sum += of(root);
    return sum;
  }

  // What is shared counts once.
  double of(ir::ExprId id) {
    if (!seen_.insert(id).second) return 0;
    const ir::Node& node = attention_.dag[id];
    const double read = reading(id);
    if (node.is(ir::Op::load_)) return read;
    const double computed = cost_for_each_score(node) + sum(node.operands);
    const bool whole = varying(dependence_[id], attention_.dims).both_sides();
    return whole ? computed : std::min(computed, read);
  }

  // Of a tensor that holds it.
  double reading(ir::ExprId id) {
    const Axes axes = varying(dependence_[id], attention_.dims);
    if (axes.both_sides()) return is_wide(id) ? reading_.table : reading_.narrow_table;
    if (axes.row || axes.column) return axes.column ? reading_.column : reading_.row;
    return kReadingOne;
  }

  // Not a condition, which would be, nor a tensor of 16 bits.
  bool is_wide(ir::ExprId id) const {
    const ir::Node& node = attention_.dag[id];
    if (!node.is(ir::Op::load_)) return node.type == ir::Type::real;
    const DType dtype = attention_.find_tensor(attention_.dag.symbol_of(id))->dtype;
    return dtype != DType::f16 && dtype != DType::bf16;
  }

  const ir::Attention& attention_;
  const Reading& reading_;
  Dependence dependence_;
  std::set<ir::ExprId> seen_;
};

// Of one SM, at its matrix rate: two products forward, five backward.
double least_for_a_score(const ir::Dims& d, const planning::Context& context) {
  const auto qk = static_cast<double>(d[Dim::Dqk]), v = static_cast<double>(d[Dim::Dv]);
  const double flop = context.backward() ? 6 * qk + 4 * v : 2 * qk + 2 * v;
  return flop / (context.gpu.matrix_rate / context.gpu.multiprocessors) * 1e-9;
}

double for_a_score(const ir::Attention& attention, const planning::Context& context) {
  const bool backward = context.backward();
  const Rates rates = rates_of(context);
  const ir::Dims& d = attention.dims;
  const auto qk = static_cast<double>(d[Dim::Dqk]), v = static_cast<double>(d[Dim::Dv]);
  const double width = backward ? (3 * qk + 2 * v) / 640 : (qk + v) / 256;
  const double products =
      std::max(rates.score * (rates.fixed_part + (1 - rates.fixed_part) * width),
               least_for_a_score(d, context));
  Operations operations(attention, backward ? kReadingBackward : kReadingForward);
  return products + rates.operation * operations.of_attention(*analyzed(attention, context));
}

// What the kernel skips by.
Band skipping(const ir::Attention& attention, const planning::Context& context) {
  const bool backward =
      context.backward() && !can(planning::Capability::backward_skips_right_of_diagonal, context);
  const Band band = analyzed(attention, context)->band();
  const bool causal = band.right && *band.right <= 0;
  if (backward ? causal : band.right || band.left) return band;
  return {};
}

struct Tiles {
  double all = 0;
  double most = 0;  // of one row of them
};

Tiles tiles(const ir::Attention& attention, const Band& band) {
  // Of lengths that nobody knows: half.
  const std::int64_t rows = attention.dims[Dim::Sq] >> attention.lengths_q;
  const std::int64_t columns = attention.dims[Dim::Skv] >> attention.lengths_kv;
  Tiles tiles;
  for (std::int64_t row = 0; row < rows; row += kTile) {
    const std::int64_t last_row = std::min(row + kTile, rows) - 1;
    const std::int64_t last =
        band.right ? std::min(columns - 1, last_row + *band.right) : columns - 1;
    const std::int64_t first = band.left ? std::max<std::int64_t>(0, row - *band.left) : 0;
    if (first > last) continue;
    const auto count = static_cast<double>(last / kTile - first / kTile + 1);
    tiles.all += count;
    tiles.most = std::max(tiles.most, count);
  }
  return tiles;
}

}  // namespace

double predicted_ms_of_tiles(const ir::Attention& attention, const TileWork& work,
                             const planning::Context& context) {
  const Rates rates = rates_of(context);
  const double tile = for_a_score(attention, context) * kTile * kTile;
  const double all = (work.tiles * tile + work.rows * rates.rows) / context.gpu.multiprocessors;
  return kLaunch + std::max(all, work.most * tile + rates.rows);
}

double predicted_ms(const ir::Attention& attention, const planning::Context& context,
                    std::int64_t classes) {
  const Tiles work = tiles(attention, skipping(attention, context));
  const auto times =
      static_cast<double>(attention.dims[Dim::B] * attention.dims[Dim::Hq] * classes);
  const auto rows = static_cast<double>((attention.dims[Dim::Sq] + kTile - 1) / kTile);
  return predicted_ms_of_tiles(attention, {times * work.all, work.most, times * rows}, context);
}

double scalar_slowdown(const planning::Gpu& gpu) {
  return scale_of(gpu).lanes * (kH200.multiprocessors / gpu.multiprocessors);
}

double predicted_ms_of_products(double scores, const ir::Dims& dims, const planning::Gpu& gpu) {
  constexpr double kReached = 0.73;  // of the matrix rate, on the H200
  const auto depth = static_cast<double>(dims[Dim::Dqk] + dims[Dim::Dv]);
  return kLaunch + scores * 2 * depth / (kReached * gpu.matrix_rate) * 1e-9;
}

double predicted_ms_of_moving(double bytes, const planning::Gpu& gpu) {
  return kLaunch + bytes / (kBytesInAMillisecond * (gpu.bandwidth / kH200.bandwidth));
}

}  // namespace attn::passes
