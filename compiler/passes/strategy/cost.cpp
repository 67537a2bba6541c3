#include "compiler/passes/strategy/cost.h"

#include <algorithm>
#include <cmath>
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

// Of a single row, whose keys and values are read as fast as memory allows.
constexpr double kStartOfRow = 0.0205;                // ms
constexpr double kBytesOfRowInAMillisecond = 4.64e9;  // on the H200
constexpr double kRandomOperations = 31;              // of random dropout, for a score
constexpr double kRandomOperationsAgain = 12;         // the same, in the backward

// In ms, of one SM: for a score with both head dimensions 128, of which a part does not depend on
// them, for an operation (hoist.h) on a score, and for 128 rows.
struct Rates {
  double score, fixed_part, operation, rows;
};
constexpr double kOfWider = 0.77;          // of the part above 128, forward
constexpr double kOfWiderBackward = 1.57;  // of all, where q and v are both above 128
constexpr double kProcessors = 132;        // of the H200
constexpr double kPico = 1e-9 * kProcessors;
constexpr Rates kForward = {0.745 * kPico, 0.35, 0.03 * kPico, 13.6e-6 * kProcessors};
constexpr Rates kBackward = {2.25 * kPico, 0.2, 0.06 * kPico, 107e-6 * kProcessors};
// 8-bit floats, where the exponentials take most of the time. (A backward of other head dimensions
// than 128 was not measured.)
constexpr Rates kForwardIn8Bits = {0.49 * kPico, 0.88, 0.03 * kPico, 13.6e-6 * kProcessors};
constexpr Rates kBackwardIn8Bits = {1.76 * kPico, 0.2, 0.06 * kPico, 107e-6 * kProcessors};
constexpr double kWideIn8Bits = 0.9 / 0.49;  // forward, with any head dimension above 128

// How many times as long an SM of the GPU takes as one of the H200.
struct Scale {
  double matrix, lanes, clock;
};
Scale scale_of(const planning::Gpu& gpu, DType dtype) {
  const auto per_sm = [dtype](const planning::Gpu& of) {
    return of.rate(dtype) / of.multiprocessors;
  };
  return {per_sm(kH200) / per_sm(gpu), kH200.clock * kH200.lanes / (gpu.clock * gpu.lanes),
          kH200.clock / gpu.clock};
}

Rates rates_of(DType dtype, const planning::Context& context) {
  const bool narrow = is_fp8(dtype);
  Rates rates = context.backward() ? (narrow ? kBackwardIn8Bits : kBackward)
                                   : (narrow ? kForwardIn8Bits : kForward);
  const Scale scale = scale_of(context.gpu, dtype);
  rates.score *= std::max(scale.matrix, scale.lanes);
  rates.operation *= scale.lanes;
  rates.rows *= scale.clock;
  return rates;
}

// What a kernel does for each score, once what costs more than reading it is hoisted (hoist.h).
class Operations {
 public:
  // `scored`: whether operations on the score count, which a backward hides in part.
  Operations(const ir::Attention& attention, const Reading& reading, bool scored)
      : attention_(attention),
        reading_(reading),
        dependence_(attention.dag),
        scored_(scored),
        of_score_(attention.dag.size()) {
    if (!scored) return;
    for (const ir::ExprId id : ir::reachable(attention.dag, attention.roots())) {
      const ir::Node& node = attention.dag[id];
      of_score_[id] = node.is(ir::Op::score_);
      for (const ir::ExprId each : node.operands) of_score_[id] = of_score_[id] || of_score_[each];
    }
  }

  double of_attention(const MaskAnalysis& mask) {
    const double masks = sum(mask.form().residual);
    in_score_ = scored_;
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
    const double computed = cost_of(node) + sum(node.operands);
    const bool whole = of_score_[id] || varying(dependence_[id], attention_.dims).both_sides();
    return whole ? computed : std::min(computed, read);
  }

  // Reals are divided by a constant as they are multiplied.
  double cost_of(const ir::Node& node) const {
    const bool by_constant =
        node.is(ir::Op::div_) && attention_.dag[node.operands[1]].is(ir::Op::const_real_);
    return by_constant ? 1 : cost_for_each_score(node);
  }

  // Of a tensor that holds it.
  double reading(ir::ExprId id) {
    const Axes axes = varying(dependence_[id], attention_.dims);
    if (axes.both_sides()) return is_wide(id) ? reading_.table : reading_.narrow_table;
    if (axes.column) return reading_.column;
    if (axes.row && !in_score_) return reading_.row;  // beside the score it is read once a row
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
  const bool scored_;
  bool in_score_ = false;
  std::vector<bool> of_score_;  // by id
  std::set<ir::ExprId> seen_;
};

// Of one SM, at its matrix rate: two products forward, five backward.
double least_for_a_score(const ir::Attention& attention, const planning::Context& context) {
  const ir::Dims& d = attention.dims;
  const auto qk = static_cast<double>(d[Dim::Dqk]), v = static_cast<double>(d[Dim::Dv]);
  const double flop = context.backward() ? 6 * qk + 4 * v : 2 * qk + 2 * v;
  return flop / (context.gpu.rate(attention.dtype) / context.gpu.multiprocessors) * 1e-9;
}

// Head dimensions above 128, relative to 128, leave less room for blocks.
double wide(double width) { return width + kOfWider * std::max(0.0, width - 1); }

double for_a_score(const ir::Attention& attention, const planning::Context& context) {
  const bool backward = context.backward();
  const Rates rates = rates_of(attention.dtype, context);
  const ir::Dims& d = attention.dims;
  const auto qk = static_cast<double>(d[Dim::Dqk]), v = static_cast<double>(d[Dim::Dv]);
  const double of_products =
      (3 * qk + 2 * v) / 640 * (std::min(qk, v) > 128 ? kOfWiderBackward : 1);
  const double width = backward ? of_products : wide((qk + v) / 256);
  const bool wide_in_8_bits =
      attention.quantize && !backward && std::max(d[Dim::Dqk], d[Dim::Dv]) > 128;
  const double of_rates =
      rates.score *
      (wide_in_8_bits ? kWideIn8Bits : rates.fixed_part + (1 - rates.fixed_part) * width);
  const double products = std::max(of_rates, least_for_a_score(attention, context));
  Operations operations(attention, backward ? kReadingBackward : kReadingForward, !backward);
  const double random = !attention.is_random() ? 0
                        : context.backward()   ? kRandomOperationsAgain
                                               : kRandomOperations;
  return products +
         rates.operation * (random + operations.of_attention(*analyzed(attention, context)));
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

// Whether the kernel is a causal one of 8-bit floats, forward.
bool reads_again(const ir::Attention& attention, const Band& band,
                 const planning::Context& context) {
  const bool causal = band.right && *band.right <= 0 && !band.left;
  return is_fp8(attention.dtype) && !context.backward() && causal;
}

// What a causal kernel of 8-bit floats reads, at the GPU's bandwidth. Full ones, and those of 16
// bits, take as long as their tiles; these take longer the more heads of keys there are, as if all
// were computed at once and only rows of one head shared the keys that they read.
double ms_of_reading_again(const ir::Attention& attention, double heads, double tiles,
                           const planning::Context& context) {
  const ir::Dims& d = attention.dims;
  const double sharing = std::max(1.0, context.gpu.multiprocessors / heads);
  const auto bytes_of_tile = static_cast<double>(kTile * (d[Dim::Dqk] + d[Dim::Dv]));
  return tiles * bytes_of_tile / sharing / (context.gpu.bandwidth * 1e6);
}

// Columns of the band, or half of all where lengths are not known.
double columns_of_row(const ir::Attention& attention, const Band& band) {
  const std::int64_t columns = attention.dims[Dim::Skv] >> attention.lengths_kv;
  const std::int64_t last = band.right ? std::min(columns - 1, *band.right) : columns - 1;
  const std::int64_t first = band.left ? std::max<std::int64_t>(0, -*band.left) : 0;
  return static_cast<double>(std::max<std::int64_t>(0, last - first + 1));
}

// cuDNN has a kernel for a single row, which is limited by memory alone.
double predicted_ms_of_row(const ir::Attention& attention, const planning::Context& context,
                           std::int64_t classes) {
  const ir::Dims& d = attention.dims;
  const double keys = columns_of_row(attention, skipping(attention, context)) *
                      static_cast<double>(d[Dim::B] * d[Dim::Hkv] * classes);
  const double bytes = static_cast<double>(size_of(attention.dtype)) * keys *
                       static_cast<double>(d[Dim::Dqk] + d[Dim::Dv]);
  return kStartOfRow +
         bytes / (kBytesOfRowInAMillisecond * (context.gpu.bandwidth / kH200.bandwidth));
}

}  // namespace

double predicted_ms_of_tiles(const ir::Attention& attention, const TileWork& work,
                             const planning::Context& context) {
  const Rates rates = rates_of(attention.dtype, context);
  const double tile = for_a_score(attention, context) * kTile * kTile;
  const double all = (work.tiles * tile + work.rows * rates.rows) / context.gpu.multiprocessors;
  return kLaunch + std::max(all, work.most * tile + rates.rows);
}

double predicted_ms(const ir::Attention& attention, const planning::Context& context,
                    std::int64_t classes) {
  if (attention.dims[Dim::Sq] == 1 && !context.backward()) {
    return predicted_ms_of_row(attention, context, classes);
  }
  const Band band = skipping(attention, context);
  const Tiles work = tiles(attention, band);
  const auto batches = static_cast<double>(attention.dims[Dim::B] * classes);
  const double times = batches * static_cast<double>(attention.dims[Dim::Hq]);
  const auto rows = static_cast<double>((attention.dims[Dim::Sq] + kTile - 1) / kTile);
  const double computing =
      predicted_ms_of_tiles(attention, {times * work.all, work.most, times * rows}, context);
  if (!reads_again(attention, band, context)) return computing;
  const double heads = batches * static_cast<double>(attention.dims[Dim::Hkv]);
  const double reading = ms_of_reading_again(attention, heads, times * work.all, context);
  // They overlap in part. Within 8 % of what was measured on an H100 (docs/benchmark.md).
  return std::cbrt(std::pow(computing, 3) + std::pow(reading, 3));
}

double scalar_slowdown(const planning::Gpu& gpu) {
  return scale_of(gpu, DType::bf16).lanes * (kH200.multiprocessors / gpu.multiprocessors);
}

double matrix_slowdown(const planning::Gpu& gpu) {
  const Scale scale = scale_of(gpu, DType::bf16);
  return std::max(scale.matrix, scale.lanes) * (kH200.multiprocessors / gpu.multiprocessors);
}

double predicted_ms_of_moving(double bytes, const planning::Gpu& gpu) {
  return kLaunch + bytes / (kBytesInAMillisecond * (gpu.bandwidth / kH200.bandwidth));
}

}  // namespace attn::passes
