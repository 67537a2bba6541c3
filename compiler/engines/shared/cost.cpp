#include "compiler/engines/shared/cost.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "compiler/engines/shared/lengths.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/rewrite/hoist.h"
#include "compiler/target/capabilities.h"
#include "compiler/target/figures.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines {
namespace {

using ir::Dim;

constexpr std::int64_t kTile = 128;
constexpr std::int64_t kSmallTile = 64;  // of a backward, and of wide heads
// What a causal backward of 8-bit floats reads again, times what a forward does: q and do, and sums
// of dq in f32, which it also writes. 253 TFLOP/s with 128 heads of 4,096 keys, 713 with 16 of
// 32,768 (H100).
constexpr double kReadAgainBackward = 8.3;
const target::Gpu kH200;  // where the constants were measured

constexpr double kRandomOperations = 31;       // of random dropout, for a score
constexpr double kRandomOperationsAgain = 12;  // the same, in the backward

// Times in ms, of one SM: for a score with both head dimensions 128, of which a part does not
// depend on them, for an operation (hoist.h) on a score, and for 128 rows.
struct Rates {
  double score, fixed_part, operation, rows;
};
constexpr double kOfWider = 0.77;          // of the part above 128, forward
constexpr double kOfWiderBackward = 1.57;  // of all, where q and v are both above 128
constexpr std::int64_t kSmallPage = 64;    // below which pages of several rows are slow
constexpr std::int64_t kWide = 256;        // above which kernels are others
constexpr double kProcessors = 132;        // of the H200
constexpr double kPico = 1e-9 * kProcessors;
// 8-bit floats, where the exponentials take most of the time. (A backward of other head dimensions
// than 128 was not measured.)
constexpr Rates kForwardIn8Bits = {0.49 * kPico, 0.88, 0.03 * kPico, 13.6e-6 * kProcessors};
constexpr Rates kBackwardIn8Bits = {1.76 * kPico, 0.2, 0.06 * kPico, 107e-6 * kProcessors};
// Backwards where all products are those of warps, by 299 TFLOP/s published for an RTX PRO 6000
// (docs/engine.md).
constexpr double kBackwardOfWarps = 1.5;
constexpr double kWideIn8Bits = 0.9 / 0.49;  // forward, with any head dimension above 128

std::int64_t depth_of(const ir::Dims& dims) { return std::max(dims[Dim::Dqk], dims[Dim::Dv]); }

// How many times as long an SM of the GPU takes as one of the H200.
struct Scale {
  double matrix, lanes, clock;
};
Scale scale_of(const target::Gpu& gpu, DType dtype) {
  const auto per_sm = [dtype](const target::Gpu& of) {
    return of.rate(dtype) / of.multiprocessors;
  };
  return {per_sm(kH200) / per_sm(gpu), kH200.clock * kH200.lanes / (gpu.clock * gpu.lanes),
          kH200.clock / gpu.clock};
}

Rates rates_of_16_bits(const target::Context& context) {
  const target::Figures& of = *context.gpu.figures;
  if (context.backward()) {
    return {of.cudnn_backward_score, of.cudnn_backward_fixed, of.cudnn_backward_operation,
            of.cudnn_backward_rows};
  }
  return {of.cudnn_score, of.cudnn_fixed, of.cudnn_operation, of.cudnn_rows};
}

// What products alone take of a score with both head dimensions 128, on an SM of the H200.
double products_of_score(DType dtype, const target::Context& context) {
  const double flop = 128 * (context.backward() ? 10 : 4);
  return flop / (kH200.rate(dtype) * 1e9) * kH200.multiprocessors;
}

// A score on another GPU. What is beside products, mostly exponentials, is done by the lanes; both
// overlap in part, and take the root of the sum of squares together.
double slower(double score, double products, const Scale& scale) {
  const double beside = std::sqrt(std::max(0.0, score * score - products * products));
  return std::hypot(products * scale.matrix, beside * scale.lanes);
}

Rates rates_of(DType dtype, const target::Context& context) {
  Rates rates = !is_fp8(dtype)       ? rates_of_16_bits(context)
                : context.backward() ? kBackwardIn8Bits
                                     : kForwardIn8Bits;
  const Scale scale = scale_of(context.gpu, dtype);
  rates.score = slower(rates.score, products_of_score(dtype, context), scale);
  if (context.backward() && context.gpu.share_of_warps == 1) rates.score *= kBackwardOfWarps;
  rates.operation *= scale.lanes;
  rates.rows *= scale.clock;
  return rates;
}

// What a kernel does for each score, once what costs more than reading it is hoisted (hoist.h).
class Operations {
 public:
  // `scored`: whether operations on the score count, which a backward hides in part. `tables`:
  // times what reading a table costs.
  Operations(const ir::Attention& attention, const rewrite::Reading& reading, double tables,
             bool scored)
      : attention_(attention),
        reading_(reading),
        tables_(tables),
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

  double of_attention(const masks::MaskAnalysis& mask) {
    const double masks = sum(mask.form().residual);
    in_score_ = scored_;
    return std::min(masks, tables_ * reading_.narrow_table) + sum({attention_.score});
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
    const bool whole =
        of_score_[id] || masks::varying(dependence_[id], attention_.dims).both_sides();
    return whole ? computed : std::min(computed, read);
  }

  // Reals are divided by a constant as they are multiplied.
  double cost_of(const ir::Node& node) const {
    const bool by_constant =
        node.is(ir::Op::div_) && attention_.dag[node.operands[1]].is(ir::Op::const_real_);
    return by_constant ? 1 : rewrite::cost_for_each_score(node);
  }

  // Time to read a tensor that holds it.
  double reading(ir::ExprId id) {
    const masks::Axes axes = masks::varying(dependence_[id], attention_.dims);
    if (axes.both_sides()) return tables_ * (is_wide(id) ? reading_.table : reading_.narrow_table);
    if (axes.column) return reading_.column;
    if (axes.row && !in_score_) return reading_.row;  // beside the score it is read once a row
    return rewrite::kReadingOne;
  }

  // Whether a value is wide: it is neither a condition, which takes a byte, nor a tensor of 16
  // bits.
  bool is_wide(ir::ExprId id) const {
    const ir::Node& node = attention_.dag[id];
    if (!node.is(ir::Op::load_)) return node.type == ir::Type::real;
    const DType dtype = attention_.find_tensor(attention_.dag.symbol_of(id))->dtype;
    return dtype != DType::f16 && dtype != DType::bf16;
  }

  const ir::Attention& attention_;
  const rewrite::Reading& reading_;
  const double tables_;
  masks::Dependence dependence_;
  const bool scored_;
  bool in_score_ = false;
  std::vector<bool> of_score_;  // by id
  std::set<ir::ExprId> seen_;
};

// Time of one SM for a score, at its matrix rate: two products forward, five backward.
double least_for_a_score(const ir::Attention& attention, const target::Context& context) {
  const ir::Dims& d = attention.dims;
  const auto qk = static_cast<double>(d[Dim::Dqk]), v = static_cast<double>(d[Dim::Dv]);
  const double flop = context.backward() ? 6 * qk + 4 * v : 2 * qk + 2 * v;
  return flop / (context.gpu.rate(attention.dtype) / context.gpu.multiprocessors) * 1e-9;
}

// Head dimensions above 128, relative to 128, leave less room for blocks.
double wide(double width) { return width + kOfWider * std::max(0.0, width - 1); }

double for_a_score(const ir::Attention& attention, const target::Context& context) {
  const bool backward = context.backward();
  const target::Figures& figures = *context.gpu.figures;
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
  const bool wide = !backward && depth_of(d) > kWide;
  const double products =
      std::max(of_rates * (wide ? figures.cudnn_wide : 1), least_for_a_score(attention, context));
  Operations operations(attention, backward ? rewrite::kReadingBackward : rewrite::kReadingForward,
                        backward ? figures.cudnn_backward_table : 1, !backward);
  const double random = !attention.is_random() ? 0
                        : context.backward()   ? kRandomOperationsAgain
                                               : kRandomOperations;
  return products +
         rates.operation * (random + operations.of_attention(*masks::analyzed(attention, context)));
}

// What the kernel skips by.
masks::Band skipping(const ir::Attention& attention, const target::Context& context) {
  const bool backward =
      context.backward() && !can(target::Capability::backward_skips_right_of_diagonal, context);
  const masks::Band band = masks::analyzed(attention, context)->band();
  const bool from_end = attention.align == ir::Align::bottom_right &&
                        attention.dims[Dim::Sq] != attention.dims[Dim::Skv];
  const bool causal = band.right && *band.right <= 0 && !(backward && from_end);
  if (backward ? causal : band.right || band.left) return band;
  return {};
}

// Work of an attention without lengths, in tiles of kTile: of rows of tiles of one head, and of the
// longest.
struct Tiles {
  double all = 0, most = 0, rows = 0;
};

Tiles tiles(const ir::Dims& dims, const masks::Band& band, std::int64_t size) {
  const std::int64_t rows = dims[Dim::Sq], columns = dims[Dim::Skv];
  Tiles tiles;
  for (std::int64_t row = 0; row < rows; row += size, ++tiles.rows) {
    const std::int64_t last_row = std::min(row + size, rows) - 1;
    const std::int64_t last =
        band.right ? std::min(columns - 1, last_row + *band.right) : columns - 1;
    const std::int64_t first = band.left ? std::max<std::int64_t>(0, row - *band.left) : 0;
    if (first > last) continue;
    const auto count = static_cast<double>(last / size - first / size + 1);
    tiles.all += count;
    tiles.most = std::max(tiles.most, count);
  }
  const double of_tile = static_cast<double>(size) / kTile;
  return {tiles.all * of_tile * of_tile, tiles.most * of_tile, tiles.rows * of_tile};
}

// What a kernel computes of all batches.
struct Work {
  Tiles tiles;
  double keys = 0;  // that one head of keys reads
  double most = 0;  // of them, of a batch
};

bool in_pages(const ir::Attention& attention) {
  return attention.layouts.at("k").kind == ir::LayoutKind::paged;
}

// The columns that a single row reads, of so many.
double columns_of_row(const ir::Attention& attention, const ir::Dims& dims, const masks::Band& band,
                      const target::Context& context) {
  const std::int64_t columns = dims[Dim::Skv], row = dims[Dim::Sq] - 1;
  const std::int64_t last = band.right ? std::min(columns - 1, row + *band.right) : columns - 1;
  const std::int64_t first = band.left ? std::max<std::int64_t>(0, row - *band.left) : 0;
  const auto seen = static_cast<double>(std::max<std::int64_t>(0, last - first + 1));
  const double besides =
      in_pages(attention) && first > 0 ? context.gpu.figures->cudnn_window_in_pages : 0;
  return std::min(static_cast<double>(columns), seen + besides);
}

Work work_of(const ir::Attention& attention, const target::Context& context) {
  const bool has_lengths = attention.lengths_q || attention.lengths_kv;
  Work work;
  for (const BatchesOfLength& length : expected_lengths(attention)) {
    if (length.rows == 0 || length.keys == 0) continue;
    std::optional<ir::Attention> own;
    if (has_lengths) own = of_length(attention, length);
    const ir::Attention& alone = own ? *own : attention;
    const masks::Band band = skipping(alone, context);
    const bool small = context.backward() || depth_of(alone.dims) > kWide;
    const Tiles of_head = tiles(alone.dims, band, small ? kSmallTile : kTile);
    work.tiles.all += length.batches * of_head.all;
    work.tiles.rows += length.batches * of_head.rows;
    work.tiles.most = std::max(work.tiles.most, of_head.most);
    const double columns = alone.dims[Dim::Sq] == 1
                               ? columns_of_row(attention, alone.dims, band, context)
                               : static_cast<double>(length.keys);
    work.keys += length.batches * columns;
    work.most = std::max(work.most, columns);
  }
  return work;
}

// Whether the kernel is a causal one of 8-bit floats.
bool reads_again(const ir::Attention& attention, const masks::Band& band) {
  const bool causal = band.right && *band.right <= 0 && !band.left;
  return is_fp8(attention.dtype) && causal;
}

// What a causal kernel of 8-bit floats reads, at the GPU's bandwidth. Full ones, and those of 16
// bits, take as long as their tiles; these take longer the more heads of keys there are, as if all
// were computed at once and only rows of one head shared the keys that they read.
double ms_of_reading_again(const ir::Attention& attention, double heads, double tiles,
                           const target::Context& context) {
  const ir::Dims& d = attention.dims;
  const double sharing = std::max(1.0, context.gpu.multiprocessors / heads);
  const auto bytes_of_tile = static_cast<double>(kTile * (d[Dim::Dqk] + d[Dim::Dv]));
  const double times = context.backward() ? kReadAgainBackward : 1;
  return times * tiles * bytes_of_tile / sharing / (context.gpu.bandwidth * 1e6);
}

double bytes_of_key(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  return static_cast<double>(size_of(attention.dtype_of("k"))) * static_cast<double>(d[Dim::Dqk]) +
         static_cast<double>(size_of(attention.dtype_of("v"))) * static_cast<double>(d[Dim::Dv]);
}

// In pages, and with head dimensions above 128, a block of threads reads the keys of a window
// alone: the keys of a head are not divided, and a last turn of few heads takes as long as a full
// one.
double ms_of_undivided_window(const ir::Attention& attention, double items, double keys,
                              const target::Gpu& gpu) {
  const std::int64_t depth = depth_of(attention.dims);
  const bool wide = depth > kTile && depth <= kWide;
  if (!wide && !in_pages(attention)) return 0;
  const target::Figures& figures = *gpu.figures;
  const double alone =
      wide ? figures.cudnn_window_256 / bytes_of_key(attention) : figures.cudnn_window_keys;
  return std::ceil(items / gpu.multiprocessors) * keys / alone * kH200.bandwidth / gpu.bandwidth;
}

// What the kernel for a single row reads at. Heads that share keys take passes over them, each of
// so many heads.
struct Reads {
  double rate = 0;  // bytes a ms, of all passes
  double passes = 1;
  double start = 0;  // ms
};

Reads reads_of_row(const ir::Attention& attention, const target::Figures& figures) {
  constexpr std::int64_t kHeads = 32, kHeadsOfWide = 16;
  const ir::Dims& d = attention.dims;
  const std::int64_t group = d[Dim::Hq] / d[Dim::Hkv], depth = depth_of(d);
  if (depth > kWide) {
    const auto passes = static_cast<double>(ceil_div(group, kHeadsOfWide));
    const double of_byte = passes / figures.cudnn_row_wide + 1 / figures.cudnn_row_wide_once;
    return {1 / of_byte, passes, figures.cudnn_row + figures.cudnn_row_wide_start};
  }
  const bool packed = attention.layouts.at("k").kind == ir::LayoutKind::thd;
  const double rate = packed        ? figures.cudnn_row_packed
                      : depth > 128 ? figures.cudnn_row_256
                                    : figures.bandwidth;
  const auto passes = static_cast<double>(ceil_div(group, kHeads));
  const double shared = figures.cudnn_row_shared / passes;
  return {passes > 1 ? std::min(rate, shared) : rate, passes, figures.cudnn_row};
}

// cuDNN has a kernel for a single row, which is limited by memory alone. The keys of a head are
// divided where there are fewer heads than multiprocessors.
double predicted_ms_of_row(const ir::Attention& attention, const target::Context& context,
                           std::int64_t classes) {
  const target::Gpu& gpu = context.gpu;
  const target::Figures& figures = *gpu.figures;
  const Work work = work_of(attention, context);
  const auto batches = static_cast<double>(std::max<std::int64_t>(1, attention.dims[Dim::B]));
  const auto heads = static_cast<double>(attention.dims[Dim::Hkv] * classes);
  const double of_key = bytes_of_key(attention);
  const Reads reads = reads_of_row(attention, figures);
  const double all = predicted_ms_of_reading(work.keys * of_key * heads, reads.rate, gpu);
  const double items = batches * heads * reads.passes;
  const double parts = std::max(1.0, std::floor(gpu.multiprocessors / items));
  const double keys_in_a_ms =
      parts * gpu.bandwidth / kH200.bandwidth *
      std::min((in_pages(attention) ? figures.cudnn_alone_in_pages : figures.cudnn_alone) / of_key,
               figures.cudnn_alone_keys);
  const double longest = work.most / keys_in_a_ms, mean = work.keys / batches / keys_in_a_ms;
  const double before = attention.lengths_kv || attention.lengths_q ? figures.cudnn_row_before : 0;
  const double window = skipping(attention, context).left
                            ? ms_of_undivided_window(attention, items, work.most, gpu)
                            : 0;
  return reads.start + before +
         std::max({all + figures.cudnn_last * (longest - mean), longest, window});
}

// A tile of 128 rows, which are read and written.
double rows_of(const ir::Attention& attention, const target::Context& context) {
  const ir::Dims& d = attention.dims;
  const auto qk = static_cast<double>(d[Dim::Dqk]), v = static_cast<double>(d[Dim::Dv]);
  return rates_of(attention.dtype, context).rows *
         (context.backward() ? (3 * qk + 2 * v) / 640 : (qk + v) / 256);
}

// Rows of tiles are computed by blocks of threads in turns: the last ones delay by a part of the
// longest, and at most by all of it.
double predicted_ms_of_rows(const ir::Attention& attention, const TileWork& work,
                            const target::Context& context) {
  const target::Figures& figures = *context.gpu.figures;
  const double processors = context.gpu.multiprocessors;
  const bool small = in_pages(attention) && attention.layouts.at("k").page < kSmallPage;
  const double tile =
      for_a_score(attention, context) * kTile * kTile * (small ? figures.cudnn_small_pages : 1);
  const double rows = rows_of(attention, context);
  const double all = (work.tiles * tile + work.rows * rows) / processors;
  const double longest = work.most * tile + rows;
  const double turns = std::ceil(work.rows / processors) * longest;
  return std::max({all, longest, std::min(turns, all + figures.cudnn_last * longest)});
}

}  // namespace

double predicted_ms_of_tiles(const ir::Attention& attention, const TileWork& work,
                             const target::Context& context) {
  const Rates rates = rates_of(attention.dtype, context);
  const double tile = for_a_score(attention, context) * kTile * kTile;
  const double all = (work.tiles * tile + work.rows * rates.rows) / context.gpu.multiprocessors;
  return context.gpu.figures->launch + std::max(all, work.most * tile + rates.rows);
}

double predicted_ms(const ir::Attention& attention, const target::Context& context,
                    std::int64_t classes) {
  if (attention.dims[Dim::Sq] == 1 && !context.backward()) {
    return predicted_ms_of_row(attention, context, classes);
  }
  const target::Figures& figures = *context.gpu.figures;
  const Work work = work_of(attention, context);
  const auto q = static_cast<double>(attention.dims[Dim::Hq] * classes);
  const auto kv = static_cast<double>(attention.dims[Dim::Hkv] * classes);
  const double computing = predicted_ms_of_rows(
      attention, {q * work.tiles.all, work.tiles.most, q * work.tiles.rows}, context);
  const double memory = predicted_ms_of_reading(kv * work.keys * bytes_of_key(attention),
                                                figures.bandwidth, context.gpu);
  const double all = context.backward() ? figures.cudnn_backward_launch + computing
                                        : figures.cudnn_launch + std::max(computing, memory);
  if (!reads_again(attention, skipping(attention, context))) return all;
  const double heads = kv * static_cast<double>(attention.dims[Dim::B]);
  const double reading = ms_of_reading_again(attention, heads, q * work.tiles.all, context);
  // They overlap in part. Within 8 % of what was measured on an H100 (docs/benchmark.md).
  return std::cbrt(std::pow(all, 3) + std::pow(reading, 3));
}

double predicted_ms_of_reading(double bytes, double rate, const target::Gpu& gpu) {
  const target::Figures& figures = *gpu.figures;
  const double scale = gpu.bandwidth / kH200.bandwidth;
  return (bytes / rate + figures.filling * (1 - std::exp(-bytes / figures.filled))) / scale;
}

double scalar_slowdown(const target::Gpu& gpu) {
  return scale_of(gpu, DType::bf16).lanes * (kH200.multiprocessors / gpu.multiprocessors);
}

double matrix_slowdown(const target::Gpu& gpu) {
  const Scale scale = scale_of(gpu, DType::bf16);
  return std::max(scale.matrix, scale.lanes) * (kH200.multiprocessors / gpu.multiprocessors);
}

double predicted_ms_of_moving(double bytes, const target::Gpu& gpu) {
  return gpu.figures->launch + bytes / (gpu.figures->moving * (gpu.bandwidth / kH200.bandwidth));
}

double predicted_ms_of_deriving(const rewrite::Hoisted& hoisted, const target::Gpu& gpu) {
  constexpr double kOperation = 0.035e-9;  // ms, on the whole H200
  double operations = 0, bytes = 0;
  for (const rewrite::DerivedTensor& tensor : hoisted.derived) {
    if (tensor.once) continue;
    double elements = 1, for_each = 0;
    for (const std::int64_t extent : tensor.dims) elements *= static_cast<double>(extent);
    const ir::ExprId roots[] = {tensor.expression};
    for (const ir::ExprId id : ir::reachable(hoisted.attention.dag, roots)) {
      for_each += rewrite::cost_for_each_score(hoisted.attention.dag[id]);
    }
    operations += elements * for_each;
    bytes += elements * static_cast<double>(size_of(tensor.dtype));
  }
  if (bytes == 0) return 0;
  return predicted_ms_of_moving(bytes, gpu) + operations * kOperation * scalar_slowdown(gpu);
}

}  // namespace attn::engines
