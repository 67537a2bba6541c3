#include "compiler/engines/shared/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "compiler/engines/shared/cost.h"
#include "compiler/masks/affine.h"
#include "compiler/masks/floor_div.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/rewrite/pass.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

constexpr std::size_t kMostParts = 16;
constexpr std::int64_t kSmallestChunk = 16;  // rows
constexpr std::int64_t kLargestModulus = 8;  // its square is tried
constexpr std::size_t kMostCuts = 4;         // of rows, and of columns

bool shows_nothing(const ir::Attention& attention) {
  return attention.masks.size() == 1 && attention.dag[attention.masks.front()].is(Op::const_bool_);
}

// The part's own rows and columns from here on, so many.
struct Window {
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
};

Stretch inside(const Stretch& stretch, std::int64_t begin, std::int64_t count) {
  return {stretch.begin + stretch.step * begin, stretch.step, count, stretch.shift};
}

Part cut_out(const Part& part, const Window& window) {
  const View local{{.begin = window.row, .count = window.rows},
                   {.begin = window.column, .count = window.columns}};
  const View view{inside(part.view.rows, window.row, window.rows),
                  inside(part.view.columns, window.column, window.columns), part.view.classes};
  return {view, *seen_through(local, part.attention)};  // a single class always is seen
}

// The part without the rows and columns around what it shows. Nothing when it shows nothing.
std::optional<Part> narrowed(const Part& part, const target::Context& context,
                             masks::Effort& effort) {
  if (part.attention.masks.empty()) return part;
  const std::optional<masks::Bounds> bounds =
      masks::analyzed(part.attention, context)->bounds(effort);
  if (!bounds) return std::nullopt;
  return cut_out(part, {bounds->rows.low, bounds->rows.high - bounds->rows.low + 1,
                        bounds->columns.low, bounds->columns.high - bounds->columns.low + 1});
}

// Indices near `zero` where the comparison of factor * i + constant with 0 is not what it is at
// the index before.
std::vector<std::int64_t> changes(Op op, std::int64_t factor, std::int64_t constant,
                                  std::int64_t zero) {
  const auto holds = [&](std::int64_t i) {
    const std::int64_t value = factor * i + constant;
    switch (op) {
      case Op::lt_: return value < 0;
      case Op::le_: return value <= 0;
      case Op::gt_: return value > 0;
      case Op::ge_: return value >= 0;
      case Op::eq_: return value == 0;
      default: return value != 0;
    }
  };
  std::vector<std::int64_t> found;
  for (std::int64_t i = zero - 1; i <= zero + 2; ++i) {
    if (holds(i) != holds(i - 1)) found.push_back(i);
  }
  return found;
}

using Ends = std::vector<std::pair<std::int64_t, std::int64_t>>;  // begin, end

Ends ends(const std::set<std::int64_t>& cuts, std::int64_t size) {
  Ends ends;
  std::int64_t begin = 0;
  for (const std::int64_t cut : cuts) {
    if (cut >= size) break;
    ends.emplace_back(begin, cut);
    begin = cut;
  }
  ends.emplace_back(begin, size);
  return ends;
}

std::int64_t size_of(const Part& part) {
  return part.view.rows.count * part.view.columns.count * part.view.classes;
}

// The partitions that were found, with their predicted times.
class PartitionCosts {
 public:
  PartitionCosts(const ir::Attention& attention, const target::Context& context,
                 masks::Effort& effort)
      : attention_(attention),
        effort_(effort),
        rows_(attention.dims[Dim::Sq]),
        columns_(attention.dims[Dim::Skv]),
        context_(context),
        backward_(context.backward()) {}

 protected:
  // False when the effort has ended; takes what making one more part of the attention does.
  bool goes_on() const {
    constexpr std::int64_t kRewrites = 64;  // of every expression
    return effort_.spend(kRewrites * static_cast<std::int64_t>(attention_.dag.size()));
  }

  Part whole() const { return {whole_view(attention_), attention_}; }

  void add(std::string_view name, std::vector<Part> parts) {
    if (backward_) parts = shifted(std::move(parts));
    if (parts.empty() || parts.size() > kMostParts) return;
    if (parts.size() == 1 && parts.front().view.classes == 1 &&
        parts.front().view == whole_view(attention_)) {
      return;
    }
    if (!goes_on()) return;
    for (Part& part : parts) part.attention = simpler(part.attention);
    std::ranges::stable_sort(parts, std::greater(), size_of);
    const double ms = predicted(parts);
    found_.push_back({name, std::move(parts), ms});
  }

  ir::Attention simpler(const ir::Attention& attention) const {
    return context_.rewrites.redundant
               ? rewrite::run_pass("redundant", attention, context_, effort_)
               : attention;
  }

  // A backward skips what is right of a causal diagonal, and left of a window beside it, and
  // nothing else: a band from -left to right is such a window from column `right` on, and a strip
  // of the columns before.
  std::vector<Part> shifted(std::vector<Part> parts) const {
    std::vector<Part> all;
    for (Part& part : parts) {
      const ir::Attention form =
          simpler(context_.rewrites.bounding_band
                      ? rewrite::run_pass("bounding_band", part.attention, forward_, effort_)
                      : part.attention);
      const masks::Band band = masks::analyzed(form, context_)->band();
      const std::int64_t rows = part.view.rows.count, columns = part.view.columns.count;
      if (!band.right || *band.right <= 0 || *band.right >= columns) {
        all.push_back(std::move(part));
        continue;
      }
      const std::int64_t right = *band.right;
      const std::int64_t strip = band.left ? std::min(rows, right + *band.left) : rows;
      std::vector<Part> two = {cut_out({part.view, form}, {0, rows, right, columns - right})};
      if (strip > 0) two.push_back(cut_out(part, {0, strip, 0, right}));
      double ms = 0;
      for (const Part& each : two) ms += cost_of(each);
      if (ms < cost_of(part)) {
        for (Part& each : two) all.push_back(std::move(each));
      } else {
        all.push_back(std::move(part));
      }
    }
    return all;
  }

  double cost_of(const Part& part) const {
    const ir::Attention form = rewrite::kernel_form(part.attention, context_, effort_);
    return predicted_ms(form, context_, part.view.classes);
  }

  double predicted(const std::vector<Part>& parts) const {
    double ms = 0;
    for (const Part& part : parts) ms += cost_of(part);
    const ir::Dims& d = attention_.dims;
    const double qk = 2.0 * static_cast<double>(d[Dim::B] * d[Dim::Hq] * d[Dim::Dqk]);
    const double v = 2.0 * static_cast<double>(d[Dim::B] * d[Dim::Hq] * d[Dim::Dv]);
    const double keys =
        (qk + v) * static_cast<double>(d[Dim::Hkv]) / static_cast<double>(d[Dim::Hq]);
    ms += merging(parts, &View::rows, rows_, backward_ ? qk : v);
    if (backward_) ms += merging(parts, &View::columns, columns_, keys);
    return ms;
  }

  // Time to merge results with so many bytes a row.
  double merging(const std::vector<Part>& parts, Stretch View::*stretch, std::int64_t size,
                 double bytes) const {
    std::vector<View> views;
    for (const Part& part : parts) views.push_back(part.view);
    const Writers who = writers(views, stretch, size);
    double ms =
        who.whole ? 0 : predicted_ms_of_moving(bytes * static_cast<double>(size), context_.gpu);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (who.alone[i]) continue;
      const std::int64_t rows = (parts[i].view.*stretch).count * parts[i].view.classes;
      ms += predicted_ms_of_moving(3 * bytes * static_cast<double>(rows), context_.gpu);
    }
    return ms;
  }

  const ir::Attention& attention_;
  masks::Effort& effort_;
  std::int64_t rows_, columns_;
  const target::Context& context_;
  target::Context forward_ = target::in_direction(context_, plan::Direction::forward);
  bool backward_;
  std::vector<Partition> found_;
};

// Partitions into chunks and classes of residues.
class PartitionClasses : public PartitionCosts {
 public:
  using PartitionCosts::PartitionCosts;

 protected:
  // What indices are divided by, in masks and in the score.
  std::set<std::int64_t> divisors() const {
    std::set<std::int64_t> found;
    std::vector<ExprId> roots = attention_.masks;
    roots.push_back(attention_.score);
    for (const ExprId id : ir::reachable(attention_.dag, roots)) {
      const Node& node = attention_.dag[id];
      if (!node.is(Op::floordiv_) && !node.is(Op::mod_)) continue;
      const Node& by = attention_.dag[node.operands[1]];
      if (by.is(Op::const_int_) && std::get<std::int64_t>(by.attribute) > 1) {
        found.insert(std::get<std::int64_t>(by.attribute));
      }
    }
    return found;
  }

  // False when it cannot be seen as one attention.
  bool add_part(std::vector<Part>& parts, const View& view) const {
    if (!goes_on()) return false;
    std::optional<ir::Attention> seen = seen_through(view, attention_);
    if (!seen) return false;
    if (!shows_nothing(*seen)) parts.push_back({view, std::move(*seen)});
    return true;
  }

  // Blocks of n on the diagonal, outside of which nothing is shown.
  void add_chunks(std::int64_t n) {
    if (n < kSmallestChunk || rows_ != columns_ || n >= rows_) return;
    if (!stays_in_chunks(n)) return;
    const std::int64_t classes = rows_ / n, rest = rows_ % n;
    const Stretch chunk{0, 1, n, n}, last{rows_ - rest, 1, rest};
    std::vector<Part> parts;
    if (!add_part(parts, {chunk, chunk, classes})) return;
    if (rest > 0 && !add_part(parts, {last, last})) return;
    add("chunks", std::move(parts));
  }

  bool stays_in_chunks(std::int64_t n) const {
    ir::Attention with = attention_;
    const auto chunk = [&](Op index) {
      return with.dag.add(Op::floordiv_, {with.dag.leaf(index), with.dag.integer(n)});
    };
    const ExprId same[] = {with.dag.add(Op::eq_, {chunk(Op::row_), chunk(Op::column_)})};
    return masks::never(with, with.masks, same, effort_);
  }

  // Rows and columns by what is left when they are divided by n.
  void add_residues(std::int64_t n) {
    if (n > kLargestModulus || n > rows_ || n > columns_) return;
    std::vector<Part> parts;
    if (are_alike(n) && add_diagonal_residues(parts, n)) {
      return add("residues", std::move(parts));
    }
    parts.clear();
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        if (!add_part(parts, {residues(row, n, rows_), residues(column, n, columns_)})) return;
      }
    }
    add("residues", std::move(parts));
  }

  // Whether all classes of the modulus have as many rows, and as many columns.
  bool are_alike(std::int64_t n) const {
    return n <= kLargestModulus && rows_ % n == 0 && columns_ % n == 0;
  }

  static Stretch residues(std::int64_t begin, std::int64_t n, std::int64_t size) {
    return {begin, n, (size - begin + n - 1) / n};
  }

  // All classes as one part, where rows see columns of their own class alone.
  bool add_diagonal_residues(std::vector<Part>& parts, std::int64_t n) const {
    for (std::int64_t column = 1; column < n; ++column) {
      std::vector<Part> others;
      for (std::int64_t row = 0; row < n; ++row) {
        const View view{residues(row, n, rows_), residues((row + column) % n, n, columns_)};
        if (!add_part(others, view) || !others.empty()) return false;
      }
    }
    const View all{{0, n, rows_ / n, 1}, {0, n, columns_ / n, 1}, n};
    return add_part(parts, all);
  }
};

class PartitionSearch : private PartitionClasses {
 public:
  using PartitionClasses::PartitionClasses;

  std::optional<Partition> best() && {
    for (const std::int64_t n : divisors()) {
      if (!goes_on()) break;
      add_chunks(n);
      add_residues(n);
    }
    add_stretches();
    add_unions();
    add_whole();
    const auto found = std::ranges::min_element(found_, {}, &Partition::predicted_ms);
    if (found == found_.end()) return std::nullopt;
    return *found;
  }

  std::optional<Part> residue_classes() && {
    const std::set<std::int64_t> found = divisors();
    for (auto n = found.rbegin(); n != found.rend(); ++n) {
      std::vector<Part> parts;
      if (!are_alike(*n) || !add_diagonal_residues(parts, *n) || parts.empty()) continue;
      parts.front().attention = simpler(parts.front().attention);
      return std::move(parts.front());
    }
    return std::nullopt;
  }

 private:
  // Where a comparison of the row alone, or of the column alone, changes its value.
  struct Cuts {
    std::set<std::int64_t> rows, columns;
  };
  Cuts cuts() const {
    Cuts cuts;
    for (const ExprId id : ir::reachable(attention_.dag, attention_.masks)) {
      const Node& node = attention_.dag[id];
      if (ir::info(node.op).rule != ir::Rule::comparison) continue;
      if (attention_.dag[node.operands[0]].type != ir::Type::integer) continue;
      add_cuts(cuts, node);
    }
    return cuts;
  }

  void add_cuts(Cuts& cuts, const Node& node) const {
    const auto x = masks::affine_of(attention_, node.operands[0]);
    const auto y = masks::affine_of(attention_, node.operands[1]);
    if (!x || !y) return;
    const std::int64_t row = x->row - y->row, column = x->column - y->column;
    const std::int64_t constant = x->constant - y->constant;
    if ((row == 0) == (column == 0)) return;
    const std::int64_t factor = row != 0 ? row : column;
    std::set<std::int64_t>& into = row != 0 ? cuts.rows : cuts.columns;
    const std::int64_t size = row != 0 ? rows_ : columns_;
    // factor * i + constant changes its sign, or is 0, here and at the next.
    const std::int64_t zero = masks::floor_div(-constant, factor);
    for (const std::int64_t at : changes(node.op, factor, constant, zero)) {
      if (at > 0 && at < size) into.insert(at);
    }
  }

  // Stretches between cuts, of rows alone and of both.
  void add_stretches() {
    const Cuts all = cuts();
    if (all.rows.size() > kMostCuts || all.columns.size() > kMostCuts) return;
    std::set<std::int64_t> both = all.rows;
    both.insert(all.columns.begin(), all.columns.end());
    // A cut of columns is one of rows too where they see each other.
    for (const std::set<std::int64_t>& rows : std::set{all.rows, both}) {
      if (rows.size() > kMostCuts) continue;
      if (!rows.empty()) add_cells("rows", ends(rows, rows_), {{0, columns_}});
      if (!all.columns.empty()) {
        add_cells("cells", ends(rows, rows_), ends(all.columns, columns_));
      }
    }
  }

  void add_cells(std::string_view name, const Ends& rows, const Ends& columns) {
    std::vector<Part> parts;
    for (const auto& [row, row_end] : rows) {
      if (!goes_on()) return;
      const Window all{row, row_end - row, 0, columns_};
      if (cell(all).attention.masks.empty()) {
        parts.push_back(cell(all));
        continue;
      }
      for (const auto& [column, column_end] : columns) {
        if (!goes_on()) return;
        const Part part = cell({row, row_end - row, column, column_end - column});
        if (shows_nothing(part.attention)) continue;
        if (std::optional<Part> narrow = narrowed(part, context_, effort_))
          parts.push_back(std::move(*narrow));
      }
    }
    add(name, std::move(parts));
  }

  Part cell(const Window& window) const {
    Part cell = cut_out(whole(), window);
    cell.attention = simpler(cell.attention);
    return cell;
  }

  // a || b as what a shows, and what b shows and a does not: each side that has a bound of its own.
  void add_unions() {
    for (std::size_t i = 0; i < attention_.masks.size(); ++i) {
      const Node node = attention_.dag[attention_.masks[i]];
      if (!node.is(Op::or_)) continue;
      for (const std::size_t side : {0U, 1U}) {
        if (!goes_on()) return;
        add_union(i, node.operands[side], node.operands[1 - side]);
      }
    }
  }

  void add_union(std::size_t mask, ExprId first, ExprId second) {
    Part main = whole();
    main.attention.masks[mask] = first;
    main.attention = rewrite::run_pass("simplify", main.attention, context_, effort_);
    if (masks::analyzed(main.attention, context_)->form().band == masks::Band{}) return;
    Part rest = whole();
    ir::Dag& dag = rest.attention.dag;
    rest.attention.masks[mask] = second;
    rest.attention.masks.push_back(dag.add(Op::not_, {first}, dag[first].pos));
    rest.attention = rewrite::run_pass("ranges", rest.attention, context_, effort_);
    if (shows_nothing(rest.attention)) return;
    std::optional<Part> narrow = narrowed(rest, context_, effort_);
    if (narrow) add("union", {std::move(main), std::move(*narrow)});
  }

  // One part: without the rows and columns around what is shown, and in a backward what becomes of
  // it where the band has a right side.
  void add_whole() {
    if (backward_) add("shifted", {whole()});
    if (std::optional<Part> narrow = narrowed(whole(), context_, effort_))
      add("narrowed", {std::move(*narrow)});
  }
};

// Whether the mask takes too long: then the effort has ended.
bool is_too_long(const ir::Attention& attention, masks::Effort& effort) {
  if (std::max(attention.dims[Dim::Sq], attention.dims[Dim::Skv]) <= kMostPartitioned) return false;
  (void)effort.spend(masks::Effort::kMost + 1);
  return true;
}

}  // namespace

std::string to_text(const Part& part) {
  const auto stretch = [&](const Stretch& s, char index) {
    if (part.view.classes == 1 && s.step == 1) {
      return fmt::format("[{}, {})", s.begin, s.begin + s.count);
    }
    std::string text = s.begin == 0 ? "" : fmt::format("{} + ", s.begin);
    if (part.view.classes > 1) text += s.shift == 1 ? "c + " : fmt::format("{} c + ", s.shift);
    text += s.step == 1 ? fmt::format("{}", index) : fmt::format("{} {}", s.step, index);
    return fmt::format("{}, {} < {}", text, index, s.count);
  };
  std::string text = fmt::format("rows {}, columns {}", stretch(part.view.rows, 'i'),
                                 stretch(part.view.columns, 'j'));
  if (part.view.classes > 1) text += fmt::format(", c < {}", part.view.classes);
  std::string masks;
  for (const ExprId mask : part.attention.masks) {
    masks += (masks.empty() ? "" : "; ") + ir::to_source(part.attention, mask);
  }
  return fmt::format("{}: {}", text, masks.empty() ? "everything" : masks);
}

std::optional<Partition> best_partition(const ir::Attention& attention,
                                        const target::Context& context) {
  masks::Effort effort(context.deadline.get());
  if (is_too_long(attention, effort)) return std::nullopt;
  return PartitionSearch(attention, context, effort).best();
}

std::optional<Part> residue_classes(const ir::Attention& attention,
                                    const target::Context& context) {
  masks::Effort effort(context.deadline.get());
  if (is_too_long(attention, effort)) return std::nullopt;
  return PartitionSearch(attention, context, effort).residue_classes();
}

}  // namespace attn::engines
