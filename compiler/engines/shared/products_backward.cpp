#include "compiler/engines/shared/products_backward.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/codegen/emit.h"
#include "compiler/codegen/learned.h"
#include "compiler/codegen/scores.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/no_keys.h"
#include "compiler/engines/shared/products.h"
#include "compiler/engines/shared/row_gradients.h"
#include "compiler/engines/shared/rows.h"
#include "compiler/engines/shared/unsupported.h"

namespace attn::engines {
namespace {

using ir::Dim;

// Internal tensors. With tiles, [n,T] of codegen::RowTile replaces [B,Hq,Sq].
constexpr const char* kCotangents = "scores.cotangents";  // do v^T, f32 [B,Hq,Sq,columns]
constexpr const char* kModified = "scores.d_modified";    // dS', f32 [B,Hq,Sq,columns]
constexpr const char* kGradients = "scores.d_products";   // dS scale, [B,Hq,Sq,columns]
constexpr const char* kFirst = "scores.first";            // i64, the first row of each tile
constexpr const char* kLse = "rows.lse";                  // f32 [B,Hq,Sq]
constexpr const char* kDeltas = "rows.deltas";            // f32 [B,Hq,Sq]

// Most turns of a loop, or twice as many (in_turns): every run of a step also takes host memory and
// time.
constexpr std::int64_t kMostTurns = 1024;

bool any_gathers(const gradient::Derivatives& derivatives,
                 std::vector<gradient::Gather> gradient::TensorGradient::*where) {
  return std::ranges::any_of(derivatives.tensors,
                             [&](const auto& tensor) { return !(tensor.*where).empty(); });
}

// The first learned tensor that a score reads, or nothing.
std::optional<std::string> learned_by_score(const gradient::Derivatives& derivatives) {
  for (const gradient::TensorGradient& tensor : derivatives.tensors) {
    if (!tensor.score.empty()) return tensor.tensor;
  }
  return std::nullopt;
}

// The rule of docs/cudnn.md, "Learned tensors beside random dropout".
Status check_dropout(const gradient::Derivatives& derivatives) {
  if (!derivatives.attention.is_random()) return {};
  const ir::SourcePos pos = derivatives.attention.dropout->pos;
  const std::optional<std::string> learned = learned_by_score(derivatives);
  return unsupported(
      pos,
      learned ? fmt::format("the gradient of `{}` depends on what random dropout keeps, which only "
                            "the fused kernels know",
                            *learned)
              : "kernels that are not fused have no random dropout",
      learned ? fmt::format("use a mask, `dropout p, keep[b, h, q_idx, kv_idx]`, or remove `{}` "
                            "from `grad`",
                            *learned)
              : "use another strategy or a mask: `dropout p, keep[b, h, q_idx, kv_idx]`");
}

// `rows` rows of each of `groups` groups; the first turn begins at row `first` of [B,Hq,Sq].
struct Tile {
  std::int64_t groups = 0;
  std::int64_t rows = 0;
  std::int64_t first = 0;
  std::int64_t turns = 1;
};

class UnfusedBackward {
 public:
  UnfusedBackward(const gradient::Derivatives& derivatives, std::int64_t score_bytes)
      : derivatives_(derivatives),
        attention_(derivatives.attention),
        score_bytes_(score_bytes),
        parts_(attention_),
        by_score_(any_gathers(derivatives, &gradient::TensorGradient::score)),
        by_sink_(any_gathers(derivatives, &gradient::TensorGradient::sink)) {}

  // The gradients of q, k and v that are wanted, and of learned tensors.
  Result<plan::Program> program() && {
    const auto wanted = gradient::wanted_gradients(attention_);
    for (const char* name : {"q", "k", "v"}) {
      if (std::ranges::find(wanted, name) != wanted.end()) wanted_.emplace_back(name);
    }
    ATTN_RETURN_IF_ERROR(add_all());
    plan::Program program = parts_.program([&](const auto& used, const Controls& controls) {
      return backward_tensors(attention_, used, controls, gradient_names(attention_));
    });
    codegen::check_scores(attention_, program);
    return program;
  }

  // The gradients of learned tensors.
  Result<LearnedGradients> learned() && {
    ATTN_RETURN_IF_ERROR(add_all());
    return LearnedGradients{parts_.internals(), parts_.steps()};
  }

 private:
  bool wants(std::string_view name) const {
    return std::ranges::find(wanted_, name) != wanted_.end();
  }
  bool wants_products() const { return wants("q") || wants("k"); }
  bool is_tiled() const { return !tiles_.empty(); }

  std::string if_any(bool there, const char* name) const { return there ? name : ""; }

  // Only sinks need rows without scores.
  Status add_all() {
    if (!wanted_.empty() || by_score_) {
      ATTN_RETURN_IF_ERROR(check_dropout(derivatives_));
      choose_tiles();
      add_from_scores();
    } else {
      if (by_sink_) add_rows();
      begin_learned({});
      add_steps(learned_.steps);
    }
    return parts_.check_bytes();
  }

  std::int64_t groups() const { return attention_.dims[Dim::B] * attention_.dims[Dim::Hkv]; }
  std::int64_t group_rows() const { return parts_.scores("", DType::f32).dims[1]; }

  // The bytes of all score tensors, for one row.
  double bytes_of_row() const {
    const auto narrow = static_cast<std::int64_t>(size_of(attention_.dtype));
    const std::int64_t of_column = 12 + (wants("v") ? narrow : 0) + (wants_products() ? narrow : 0);
    const std::int64_t of_key = attention_.dropout ? 8 : 4;
    return static_cast<double>(parts_.columns() * of_column + attention_.dims[Dim::Skv] * of_key);
  }

  // An upper bound.
  std::int64_t steps_of_tile() const {
    std::size_t steps = 16;
    for (const gradient::TensorGradient& tensor : derivatives_.tensors) {
      steps += 1 + 2 * (tensor.score.size() + tensor.sink.size());
    }
    return static_cast<std::int64_t>(steps);
  }

  // Every tile updates all sums of learned tensors: where these are large, tiles are too. With rows
  // of all groups, every tile reads all keys, so tiles of whole groups are better.
  void choose_tiles() {
    const auto most = static_cast<double>(
        std::max(score_bytes_, by_score_ ? codegen::learned_bytes(derivatives_) : 0));
    const std::int64_t rows = group_rows();
    const double bytes_of_group = bytes_of_row() * static_cast<double>(rows);
    const auto all = static_cast<double>(groups());
    if (bytes_of_group * all <= most) return;
    by_groups_ = bytes_of_group <= most;
    const std::int64_t count = by_groups_ ? groups() : rows;
    const double each = by_groups_ ? bytes_of_group : bytes_of_row() * all;
    const std::int64_t turns = std::min(kMostTurns, plan::kMostRuns / 2 / steps_of_tile());
    const std::int64_t least = (count + turns - 1) / turns;
    const auto fit = static_cast<std::int64_t>(most / 2 / each);
    for (const RowTurns& tile : in_turns(count, std::max(least, fit))) {
      tiles_.push_back(by_groups_ ? Tile{tile.rows, rows, tile.first * rows, tile.turns}
                                  : Tile{groups(), tile.rows, tile.first, tile.turns});
    }
  }

  // The distance between the first rows of consecutive tiles.
  std::int64_t step_of(const Tile& tile) const {
    return by_groups_ ? tile.groups * tile.rows : tile.rows;
  }

  // The tile as kernels receive it; nothing without tiles.
  std::optional<codegen::RowTile> row_tile(const Tile& tile) const {
    if (!is_tiled()) return std::nullopt;
    const bool again = tile.first != 0;
    return codegen::RowTile{tile.groups,
                            tile.rows,
                            group_rows(),
                            {kFirst, again ? tiles_.front().turns : 0, tile.turns > 1 ? 1 : 0},
                            again};
  }

  // A tile's rows of a copy.
  Matrix rows_of(Matrix copy, const Tile& tile) const {
    if (!is_tiled()) return copy;
    copy.rows_held = copy.dims[1];
    copy.dims[0] = tile.groups;
    copy.dims[1] = tile.rows;
    copy.first_row = tile.first;
    copy.advance = tile.turns > 1 ? step_of(tile) : 0;
    return copy;
  }

  // The keys of a copy that the rows of a tile see.
  Matrix keys_of(Matrix copy, const Tile& tile) const {
    if (!by_groups_) return copy;
    const std::int64_t keys = copy.dims[1];
    copy.dims[0] = tile.groups;
    copy.first_row = tile.first / tile.rows * keys;
    copy.advance = tile.turns > 1 ? tile.groups * keys : 0;
    return copy;
  }

  Matrix scores(const char* name, DType dtype, const Tile& tile) const {
    Matrix matrix = parts_.scores(name, dtype);
    matrix.dims[0] = tile.groups;
    matrix.dims[1] = tile.rows;
    return matrix;
  }

  std::vector<std::int64_t> rows_dims() const {
    const ir::Dims& d = attention_.dims;
    if (is_tiled()) return {tiles_.front().groups, tiles_.front().rows};
    return {d[Dim::B], d[Dim::Hq], d[Dim::Sq]};
  }

  void add_of_scores(const char* name, DType dtype, std::int64_t columns) {
    std::vector<std::int64_t> dims = rows_dims();
    dims.push_back(columns);
    parts_.add_internal(name, dtype, dims);
  }
  void add_of_scores(const char* name, DType dtype) {
    add_of_scores(name, dtype, parts_.columns());
  }

  void add_from_scores() {
    std::vector<std::string> read = {"q", "k", "v", "do"};
    if (attention_.partial) read.emplace_back("o");
    parts_.add_copies_in(read);
    declare_scores();
    declare_inputs();
    const std::vector<Tile> whole = {{groups(), group_rows()}};
    const std::vector<Tile>& all = is_tiled() ? tiles_ : whole;
    if (is_tiled()) add_first_rows();
    begin_learned(row_tile(all.front()));
    add_steps(learned_.before);
    for (const Tile& tile : all) {
      parts_.set_turns(tile.turns);
      add_scores(tile);
      add_inputs(tile);
      if (!is_tiled()) add_outputs();
      add_steps(learned_steps(row_tile(tile)).steps);
    }
    parts_.set_turns(1);
    if (is_tiled()) add_outputs();
    add_steps(learned_.after);
  }

  void declare_scores() {
    add_of_scores(kProducts, DType::f32);
    add_of_scores(kCotangents, DType::f32);
    const std::int64_t keys = attention_.dims[Dim::Skv];
    add_of_scores(kScores, DType::f32, keys);
    if (attention_.dropout) add_of_scores(kKept, DType::i32, keys);
    if (attention_.sink) parts_.add_internal(kSinks, DType::f32, {attention_.dims[Dim::Hq]});
    add_of_scores(kModified, DType::f32);
    if (wants("v")) add_of_scores(kWeights, attention_.dtype);
    if (by_sink_) declare_statistics();
  }

  void declare_statistics() {
    for (const char* name : {kLse, kDeltas}) parts_.add_internal(name, DType::f32, rows_dims());
  }

  void declare_inputs() {
    if (wants_products()) add_of_scores(kGradients, attention_.dtype);
    for (const std::string& name : wanted_) {
      parts_.add_copy(gradient::gradient_name(name));
      if (!is_summed(name)) continue;
      const auto dims = parts_.copy(gradient::gradient_name(name)).dims;
      for (const std::string& of : {of_tile(name), sum_of(name)}) {
        parts_.add_internal(of, DType::f32, {dims.begin(), dims.end()});
      }
    }
  }

  // Whether tiles give partial gradients that must be summed: tiles of rows, for k and v.
  bool is_summed(const std::string& name) const { return is_tiled() && !by_groups_ && name != "q"; }
  static std::string of_tile(const std::string& name) { return "scores.d" + name; }
  static std::string sum_of(const std::string& name) { return of_tile(name) + ".sum"; }

  void add_first_rows() {
    std::int64_t count = 0;
    for (const Tile& tile : tiles_) count += tile.turns;
    parts_.add_internal(kFirst, DType::i64, {count});
    codegen::KernelText kernel;
    kernel.make(kFirst, DType::i64, count, "the first row of each tile",
                fmt::format("out[i] = i * {};", step_of(tiles_.front())));
    parts_.add_step(std::move(kernel).finish(true));
    add_sums([](const std::string& /*of_tile*/) { return "0"; }, false);
  }

  // dS', and the weights if wanted.
  void add_scores(const Tile& tile) {
    parts_.add_product(rows_of(parts_.copy("q"), tile), turned(keys_of(parts_.copy("k"), tile)),
                       scores(kProducts, DType::f32, tile));
    parts_.add_product(rows_of(parts_.copy("do"), tile), turned(keys_of(parts_.copy("v"), tile)),
                       scores(kCotangents, DType::f32, tile));
    parts_.add_step(codegen::scores_step(
        attention_, {kProducts, parts_.columns(), kScores, kKept, kSinks, row_tile(tile)}));
    parts_.add_step(
        row_gradients(attention_, {kScores, if_any(attention_.sink.has_value(), kSinks),
                                   if_any(attention_.dropout.has_value(), kKept), kCotangents,
                                   kModified, if_any(wants("v"), kWeights), if_any(by_sink_, kLse),
                                   if_any(by_sink_, kDeltas), parts_.columns(), row_tile(tile),
                                   attention_.partial ? std::optional(outputs()) : std::nullopt}));
  }

  void add_rows() {
    if (attention_.quantize) {
      declare_statistics();
      parts_.add_step(narrow_row_deltas(attention_, kLse, kDeltas));
      return;
    }
    parts_.add_copies_in({"o", "do"});
    declare_statistics();
    parts_.add_step(row_deltas(attention_, {outputs(), kLse, kDeltas}));
  }

  BoundOutputs outputs() const {
    const Matrix o = parts_.copy("o");
    return {o.tensor, parts_.copy("do").tensor, o.dims[2]};
  }

  void add_inputs(const Tile& tile) {
    if (wants_products()) {
      parts_.add_step(codegen::score_gradients_step(
          derivatives_, {kProducts, kModified, parts_.columns(), kGradients, row_tile(tile)}));
    }
    const Matrix gradients = scores(kGradients, attention_.dtype, tile);
    if (wants("q")) {
      parts_.add_product(gradients, keys_of(parts_.copy("k"), tile),
                         rows_of(parts_.copy("dq"), tile));
    }
    if (wants("k")) add_keys("k", gradients, "q", tile);
    if (wants("v")) add_keys("v", scores(kWeights, attention_.dtype, tile), "do", tile);
    add_sums([](const std::string& part) { return fmt::format("out[i] + {}[i]", part); }, true);
  }

  void add_keys(const std::string& name, const Matrix& factors, const char* by, const Tile& tile) {
    Matrix made = keys_of(parts_.copy(gradient::gradient_name(name)), tile);
    if (is_summed(name)) {
      made.tensor = of_tile(name);
      made.dtype = DType::f32;
    }
    parts_.add_product(turned(factors), rows_of(parts_.copy(by), tile), made);
  }

  std::int64_t elements_of_copy(const std::string& name) const {
    const auto dims = parts_.copy(gradient::gradient_name(name)).dims;
    return dims[0] * dims[1] * dims[2];
  }

  // The sums over tiles: element i of each becomes `value` of the tile's tensor.
  template <typename Value>
  void add_sums(const Value& value, bool amends) {
    codegen::KernelText kernel;
    std::int64_t threads = 0;
    for (const std::string& name : wanted_) {
      if (!is_summed(name)) continue;
      const std::string part = amends ? kernel.read(of_tile(name), DType::f32) : "";
      kernel.make(sum_of(name), DType::f32, elements_of_copy(name),
                  fmt::format("partial sum of {}", gradient::gradient_name(name)),
                  fmt::format("out[i] = {};", value(part)));
      threads += elements_of_copy(name);
    }
    if (kernel.empty()) return;
    plan::DeriveStep step = std::move(kernel).finish(false);
    if (amends) step.amends = threads;
    parts_.add_step(std::move(step));
  }

  // Copies the gradients to the outputs.
  void add_outputs() {
    if (wanted_.empty()) return;
    add_whole_sums();
    std::vector<std::string> outputs;
    for (const std::string& name : wanted_) outputs.push_back(gradient::gradient_name(name));
    parts_.add_copies_out(outputs);
  }

  void add_whole_sums() {
    codegen::KernelText kernel;
    for (const std::string& name : wanted_) {
      if (!is_summed(name)) continue;
      const std::string gradient = gradient::gradient_name(name);
      kernel.make(parts_.copy(gradient).tensor, attention_.dtype, elements_of_copy(name),
                  fmt::format("{}, packed", gradient),
                  fmt::format("out[i] = {};", codegen::element_text(
                                                  attention_.dtype,
                                                  kernel.read(sum_of(name), DType::f32) + "[i]")));
    }
    if (!kernel.empty()) parts_.add_step(std::move(kernel).finish(false));
  }

  codegen::LearnedSteps learned_steps(const std::optional<codegen::RowTile>& tile) const {
    return codegen::learned_steps(derivatives_,
                                  {kProducts, kModified, parts_.columns(), kLse, kDeltas, tile});
  }

  void begin_learned(const std::optional<codegen::RowTile>& tile) {
    learned_ = learned_steps(tile);
    for (const plan::TensorInfo& tensor : learned_.internals) {
      parts_.add_internal(tensor.name, tensor.dtype, tensor.dims);
    }
  }

  void add_steps(const std::vector<plan::DeriveStep>& steps) {
    for (const plan::DeriveStep& step : steps) parts_.add_step(step);
  }

  const gradient::Derivatives& derivatives_;
  const ir::Attention& attention_;
  const std::int64_t score_bytes_;
  Products parts_;
  const bool by_score_, by_sink_;
  std::vector<std::string> wanted_;  // of q, k and v
  std::vector<Tile> tiles_;          // none: all rows at once
  bool by_groups_ = false;           // tiles are of whole groups
  codegen::LearnedSteps learned_;
};

}  // namespace

Result<plan::Program> lower_backward_by_products(const ir::Attention& attention,
                                                 std::int64_t score_bytes) {
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  ATTN_RETURN_IF_ERROR(check_gradients(attention));
  if (attention.dims[Dim::Skv] == 0) return no_keys_backward(attention);
  const gradient::Derivatives derivatives = gradient::differentiate(attention);
  ATTN_ASSIGN(plan::Program program, UnfusedBackward(derivatives, score_bytes).program());
  ATTN_RETURN_IF_ERROR(check_program(attention, program));
  return program;
}

Result<LearnedGradients> learned_gradients(const gradient::Derivatives& derivatives,
                                           std::int64_t score_bytes) {
  return UnfusedBackward(derivatives, score_bytes).learned();
}

}  // namespace attn::engines
