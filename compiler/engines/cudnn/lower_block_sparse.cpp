#include "compiler/engines/cudnn/lower_block_sparse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "compiler/codegen/emit.h"
#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/scores.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/products.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/rewrite/pass.h"
#include "compiler/rewrite/ranged.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/target/capabilities.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using engines::BlockLists;
using ir::Dim;
using ir::ExprId;
using ir::LayoutKind;
using ir::Op;

constexpr const char* kRows = "pages.rows";
constexpr const char* kSeen = "pages.seen";
constexpr std::int64_t kMostElements = std::int64_t{1} << 28;  // of the page lists

std::string copy_name(const std::string& name) { return "pages." + name; }

// The dims and strides of an operand of the whole attention.
struct Place {
  Dims4 dims, strides;  // [B,H,S,D]
};
Place place_of(const ir::Attention& whole, const std::string& name) {
  return {logical_dims(whole, name), stored_strides(whole, name)};
}

// Packed, so that the tiles of all entries are evenly spaced.
Place copy_of(const ir::Attention& whole, const std::string& name, bool by_head) {
  const Dims4 dims = logical_dims(whole, name);
  const auto [b, h, s, d] = dims;
  return {dims, by_head ? Dims4{h * s * d, s * d, d, 1} : Dims4{s * h * d, d, h * d, 1}};
}

// The distance between consecutive entries' rows; nothing if it varies.
std::optional<std::int64_t> entry_stride(const Place& place, const BlockLists& lists,
                                         bool by_head) {
  std::optional<std::int64_t> stride;
  std::int64_t inner = 1;
  const auto add = [&](std::int64_t count, std::int64_t next) {
    if (count == 1) return true;
    if (stride && next != *stride * inner) return false;
    if (!stride) stride = next;
    inner *= count;
    return true;
  };
  const bool fits = add(lists.tiles, lists.tile * place.strides[2]) &&
                    (!by_head || add(place.dims[1], place.strides[1])) &&
                    add(place.dims[0], place.strides[0]);
  if (!fits) return std::nullopt;
  return stride.value_or(lists.tile * place.strides[2]);
}

// How the pages of k or v are numbered: every page begins at a multiple of `unit`, so pages may
// overlap. Page p has number batch * b + head * (key head) + page * p.
struct Numbers {
  std::int64_t unit = 0;
  std::int64_t batch = 0, head = 0, page = 0;
  std::int64_t count = 0;
};

Numbers numbers_of(const Place& place, const BlockLists& lists, bool by_head) {
  const bool batches = place.dims[0] > 1, heads = by_head && place.dims[1] > 1;
  const std::int64_t page = lists.page * place.strides[2];
  Numbers numbers{.unit = page};
  if (batches) numbers.unit = std::gcd(numbers.unit, place.strides[0]);
  if (heads) numbers.unit = std::gcd(numbers.unit, place.strides[1]);
  if (numbers.unit == 0) return numbers;
  numbers.page = page / numbers.unit;
  if (batches) numbers.batch = place.strides[0] / numbers.unit;
  if (heads) numbers.head = place.strides[1] / numbers.unit;
  numbers.count = 1 + (lists.pages - 1) * numbers.page + (place.dims[0] - 1) * numbers.batch +
                  (place.dims[1] - 1) * numbers.head;
  return numbers;
}

Status check_layout(const ir::Attention& whole, const std::string& name) {
  if (repeats(layout_of(whole, name))) {
    return unsupported(whole.pos,
                       fmt::format("`{}` has a stride of 0, which pages do not have", name));
  }
  const LayoutKind kind = layout_of(whole, name).kind;
  if (kind == LayoutKind::paged || kind == LayoutKind::thd) {
    return unsupported(whole.pos, "the rows of paged and thd tensors are not contiguous");
  }
  const Place place = place_of(whole, name);
  if (moves_in_vectors(place.dims, place.strides) && place.strides[2] > 0) return {};
  return unsupported(
      whole.pos,
      fmt::format("pages need contiguous rows in multiples of 16 bytes, and `{}` has others",
                  name));
}

Status check_whole(const ir::Attention& whole) {
  if (whole.lengths_q || whole.lengths_kv) {
    return unsupported(whole.pos,
                       "with lengths, rows and columns end at a different place in each batch");
  }
  if (whole.dropout && !whole.dropout->keep) {
    return unsupported(whole.dropout->pos, "each tile would draw different random numbers");
  }
  for (const char* name : {"q", "k", "v", "o"}) {
    ATTN_RETURN_IF_ERROR(check_layout(whole, name));
  }
  return {};
}

class Tiler {
 public:
  Tiler(const ir::Attention& whole, const BlockLists& lists) : whole_(whole) { out_.lists = lists; }

  Result<Tiled> run(const target::Context& context) && {
    ATTN_RETURN_IF_ERROR(check_whole(whole_));
    ATTN_RETURN_IF_ERROR(choose_entries());
    out_.rows = whole_.unused_name("page_rows");
    out_.columns = whole_.unused_name("page_columns");
    out_.attention = with_positions();
    set_dims();
    for (const char* name : {"q", "o"}) set_rows(name);
    for (const char* name : {"k", "v"}) ATTN_RETURN_IF_ERROR(set_pages(name));
    declare(std::string(ir::kLengthsKv), {out_.attention.dims[Dim::B]});
    out_.attention.lengths_kv = true;
    declare_if_read(out_.rows, Dim::Sq);
    declare_if_read(out_.columns, Dim::Skv);
    out_.attention = rewrite::run_pass("ranges", out_.attention, context);
    ATTN_RETURN_IF_ERROR(check_sizes(context));
    return std::move(out_);
  }

 private:
  // Chooses `by_head` for as few copies as possible.
  Status choose_entries() {
    if (whole_.sink && lists().axes.head) {
      return unsupported(
          whole_.pos,
          "with page lists per head, heads become batches, and a sink cannot vary by batch");
    }
    int least = 3;
    for (const bool by_head : {false, true}) {
      if (by_head ? whole_.sink.has_value() : lists().axes.head) continue;
      const bool copies_q = !entry_stride(place_of(whole_, "q"), lists(), by_head);
      const bool copies_o = !entry_stride(place_of(whole_, "o"), lists(), by_head);
      const int copies = (copies_q ? 1 : 0) + (copies_o ? 1 : 0);
      if (copies >= least) continue;
      least = copies;
      out_.by_head = by_head;
      out_.copies_q = copies_q;
      out_.copies_o = copies_o;
    }
    return {};
  }

  // The attention with the residual masks, in terms of the whole's rows and columns.
  ir::Attention with_positions() const {
    ir::Attention rest = whole_;
    rest.masks = lists().residual;
    return rewrite::rebuilt(
        rest,
        [&](rewrite::SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
            const std::vector<ExprId>&) -> std::optional<ExprId> {
          const ir::Node& node = rest.dag[id];
          const ExprId entry = dag.leaf(Op::batch_, node.pos);
          const auto by = [&](Op op, ExprId x, std::int64_t y) {
            return builder.make(op, {x, dag.integer(y, node.pos)}, node.pos);
          };
          switch (node.op) {
            case Op::batch_: return by(Op::floordiv_, entry, lists().tiles * heads());
            case Op::head_:
              if (!out_.by_head) return std::nullopt;
              return by(Op::mod_, by(Op::floordiv_, entry, lists().tiles), heads());
            case Op::row_:
            case Op::column_: {
              const ExprId indices[] = {entry, dag.leaf(node.op, node.pos)};
              return dag.add_symbol(Op::load_, node.is(Op::row_) ? out_.rows : out_.columns,
                                    ir::Type::integer, indices, node.pos);
            }
            default: return std::nullopt;
          }
        });
  }

  void set_dims() {
    ir::Dims& dims = out_.attention.dims;
    dims.set(Dim::B, whole_.dims[Dim::B] * heads() * lists().tiles);
    if (out_.by_head) dims.set(Dim::Hq, 1);
    if (out_.by_head) dims.set(Dim::Hkv, 1);
    dims.set(Dim::Sq, lists().tile);
    dims.set(Dim::Skv, lists().longest * lists().page);
    out_.attention.align = ir::Align::top_left;
  }

  void set_rows(const std::string& name) {
    const bool copied = name == "q" ? out_.copies_q : out_.copies_o;
    const Place place = copied ? copy_of(whole_, name, out_.by_head) : place_of(whole_, name);
    ir::Layout& layout = out_.attention.layouts[name];
    layout = {};
    layout.kind = LayoutKind::strided;
    layout.strides = place.strides;
    layout.strides[0] = *entry_stride(place, lists(), out_.by_head);
  }

  Status set_pages(const std::string& name) {
    const Place place = place_of(whole_, name);
    const Numbers numbers = numbers_of(place, lists(), out_.by_head);
    if (numbers.count > std::numeric_limits<std::int32_t>::max()) {
      return unsupported(whole_.pos,
                         fmt::format("`{}` has more pages than 32 bits can number", name));
    }
    ir::Layout& layout = out_.attention.layouts[name];
    layout = {};
    layout.kind = LayoutKind::paged;
    layout.page = lists().page;
    layout.pages = numbers.count;
    layout.strides = place.strides;
    layout.strides[0] = numbers.unit;
    return {};
  }

  void declare(const std::string& name, const std::vector<std::int64_t>& extents) {
    ir::CapturedTensor tensor;
    tensor.name = name;
    tensor.dtype = DType::i32;
    for (const std::int64_t extent : extents) {
      tensor.extents.push_back(out_.attention.dag.integer(extent));
    }
    out_.attention.tensors.push_back(std::move(tensor));
  }

  void declare_if_read(std::string& name, Dim dim) {
    const ir::Attention& of = out_.attention;
    const bool read = std::ranges::any_of(ir::reachable(of.dag, of.roots()), [&](ExprId id) {
      return of.dag[id].is(Op::load_) && of.dag.symbol_of(id) == name;
    });
    if (!read) return name.clear();
    declare(name, {of.dims[Dim::B], of.dims[dim]});
  }

  Status check_sizes(const target::Context& context) const {
    const ir::Dims& d = out_.attention.dims;
    if (d[Dim::B] > limit(target::Capability::most_batches, context)) {
      return unsupported(
          whole_.pos,
          fmt::format("{} tiles of rows exceed the batch limit of a launch", d[Dim::B]));
    }
    const std::int64_t of_lists = (lists().axes.batch ? whole_.dims[Dim::B] : 1) *
                                  (lists().axes.head ? whole_.dims[Dim::Hq] : 1);
    const bool by_row = !lists().same_rows && !lists().once;
    const std::int64_t largest =
        std::max({d[Dim::B] * lists().longest, out_.columns.empty() ? 0 : d[Dim::B] * d[Dim::Skv],
                  of_lists * lists().pages * (by_row ? whole_.dims[Dim::Sq] : lists().tiles)});
    if (largest <= kMostElements) return {};
    return unsupported(whole_.pos, "the page lists would take more than 1 GB");
  }

  const BlockLists& lists() const { return out_.lists; }
  std::int64_t heads() const { return out_.by_head ? whole_.dims[Dim::Hq] : 1; }

  const ir::Attention& whole_;
  Tiled out_;
};

class BlockSparseMaker {
 public:
  BlockSparseMaker(const ir::Attention& whole, const Tiled& tiled, plan::Program inner)
      : whole_(whole),
        tiled_(tiled),
        lists_(tiled.lists),
        inner_(std::move(inner)),
        entries_(tiled.attention.dims[Dim::B]),
        heads_(tiled.by_head ? whole.dims[Dim::Hq] : 1),
        list_heads_(tiled.lists.axes.head ? whole.dims[Dim::Hq] : 1),
        list_count_((tiled.lists.axes.batch ? whole.dims[Dim::B] : 1) * list_heads_) {}

  Result<plan::Program> make() && {
    add_seen();
    add_lists();
    if (!tiled_.rows.empty()) add_rows();
    if (!tiled_.columns.empty()) add_columns();
    if (tiled_.copies_q) add_copy("q", copy_of(whole_, "q", tiled_.by_head), true);
    append();
    add_statistics();
    if (tiled_.copies_o) add_copy("o", copy_of(whole_, "o", tiled_.by_head), false);
    bind();
    codegen::check_scores(whole_, program_);
    ATTN_RETURN_IF_ERROR(check_program(whole_, program_));
    return std::move(program_);
  }

 private:
  void add_internal(const std::string& name, DType dtype, std::vector<std::int64_t> dims) {
    program_.internals.push_back(plan::internal_tensor(name, dtype, std::move(dims)));
  }

  void add(plan::DeriveStep step) {
    if (step.once) once_.insert(step.outputs.begin(), step.outputs.end());
    program_.steps.emplace_back(std::move(step));
  }
  void add(codegen::KernelText kernel) { add(std::move(kernel).finish(lists_.once)); }

  // Looks by row first, then by tile, if rows differ and the step runs at every execute.
  void add_seen() {
    if (lists_.same_rows || lists_.once) return add_looks(kSeen, lists_.tile, lists_.tiles);
    add_looks(kRows, 1, whole_.dims[Dim::Sq]);
    add_internal(kSeen, DType::i32, {list_count_, lists_.pages, lists_.tiles});
    codegen::KernelText kernel;
    const std::string rows = kernel.read(kRows, DType::i32);
    kernel.make(kSeen, DType::i32, list_count_ * lists_.pages * lists_.tiles,
                "the pages that each tile sees",
                fmt::format("int any = 0;\n"
                            "    for (int r = 0; r < {0}; ++r) any |= {1}[i * {0} + r];\n"
                            "    out[i] = any;",
                            lists_.tile, rows));
    add(std::move(kernel));
  }

  // [lists, pages, groups], each of `group` rows. Masks that are uniform over a block are evaluated
  // once per block.
  void add_looks(const char* name, std::int64_t group, std::int64_t groups) {
    add_internal(name, DType::i32, {list_count_, lists_.pages, groups});
    const std::int64_t count = list_count_ * lists_.pages * groups;
    codegen::KernelText kernel;
    const std::string out =
        kernel.write(name, DType::i32,
                     fmt::format("the pages that {} sees", group == 1 ? "each row" : "each tile"));
    std::vector<codegen::Field> fields = {{"blocks", count},     {"groups", groups},
                                          {"group", group},      {"pages", lists_.pages},
                                          {"page", lists_.page}, {"list_heads", list_heads_},
                                          {"out", out}};
    if (!lists_.residual.empty()) {
      fields.emplace_back("rows", lists_.same_rows ? 1 : group);
      fields.emplace_back("columns", lists_.same_columns ? 1 : lists_.page);
    }
    std::vector<ExprId> common = whole_.masks;
    std::erase_if(common, [this](ExprId mask) {
      return std::ranges::find(lists_.residual, mask) != lists_.residual.end();
    });
    kernel.run("block_lists.cuh",
               fmt::format("Looks<{}>", count <= UINT32_MAX ? "unsigned" : "unsigned long long"),
               fields, shown_text(common) + ", " + shown_text(lists_.residual));
    codegen::read_inputs(kernel, codegen::inputs_of(whole_, whole_.masks));
    add(std::move(kernel));
  }

  // C++ text: a function of b, h, row and column that returns whether all masks show a score.
  std::string shown_text(const std::vector<ExprId>& masks) const {
    if (masks.empty()) return "kernels::Always()";
    codegen::ExpressionWriter writer(whole_);
    masks::Axes axes = lists_.axes;
    axes.row = axes.column = true;
    writer.begin(axes);
    std::vector<std::string> shown;
    for (const ExprId mask : masks) shown.push_back(writer.value(mask));
    return fmt::format("[&](int b, int h, int row, int column) {{\n{}    return {};\n  }}",
                       writer.statements(4), fmt::join(shown, " && "));
  }

  std::vector<std::string> tables() const {
    std::vector<std::string> names;
    for (const char* name : {"k", "v"}) names.push_back(page_table_name(tiled_.attention, name));
    if (names[0] == names[1]) names.pop_back();
    return names;
  }

  Numbers numbers(const std::string& table) const {
    const char* of = table == page_table_name(tiled_.attention, "k") ? "k" : "v";
    return numbers_of(place_of(whole_, of), lists_, tiled_.by_head);
  }

  // C++ text: the batch, head and tile of entry n.
  std::string entry_text() const {
    return fmt::format("const int t = n % {0}, h = n / {0} % {1}, b = n / {0} / {1};", lists_.tiles,
                       heads_);
  }

  // C++ text: the number of its page 0.
  std::string first_page(const Numbers& numbers) const {
    const std::int64_t group = whole_.dims[Dim::Hq] / whole_.dims[Dim::Hkv];
    return fmt::format("(b * {} + h / {} * {})", numbers.batch, group, numbers.head);
  }

  void add_lists() {
    codegen::KernelText kernel;
    std::string put = "[&](int b, int h, int place, int p) {\n";
    for (const std::string& table : tables()) {
      add_internal(table, DType::i32, {entries_, lists_.longest});
      const std::string out = kernel.write(table, DType::i32, "the page list of each tile");
      const Numbers of = numbers(table);
      put += fmt::format("    {}[place] = {} + p * {};\n", out, first_page(of), of.page);
    }
    const std::string lengths(ir::kLengthsKv);
    add_internal(lengths, DType::i32, {entries_});
    kernel.run("block_lists.cuh", "Lists",
               {{"entries", entries_},
                {"heads", heads_},
                {"tiles", lists_.tiles},
                {"pages", lists_.pages},
                {"page", lists_.page},
                {"longest", lists_.longest},
                {"by_batch", lists_.axes.batch ? "true" : ""},
                {"list_heads", list_heads_},
                {"seen", kernel.read(kSeen, DType::i32)},
                {"lengths", kernel.write(lengths, DType::i32, "the columns in each page list")}},
               put + "  }");
    add(std::move(kernel));
  }

  void add_rows() {
    add_internal(tiled_.rows, DType::i32, {entries_, lists_.tile});
    codegen::KernelText kernel;
    kernel.make(tiled_.rows, DType::i32, entries_ * lists_.tile, "row indices",
                fmt::format("out[i] = i % {};", whole_.dims[Dim::Sq]));
    add(std::move(kernel).finish(true));
  }

  void add_columns() {
    const std::string table = page_table_name(tiled_.attention, "k");
    const std::int64_t width = lists_.longest * lists_.page;
    add_internal(tiled_.columns, DType::i32, {entries_, width});
    codegen::KernelText kernel;
    const std::string pages = kernel.read(table, DType::i32);
    const Numbers of = numbers(table);
    kernel.make(tiled_.columns, DType::i32, entries_ * width, "column indices",
                fmt::format("const int n = i / {0}, c = i % {0};\n    {1}\n"
                            "    const int page = ({2}[(i - c) / {3} + c / {3}] - {4}) / {5};\n"
                            "    out[i] = page * {3} + c % {3};",
                            width, entry_text(), pages, lists_.page, first_page(of), of.page));
    add(std::move(kernel));
  }

  // Copies between a tensor of the whole and its copy, 16 bytes per thread.
  void add_copy(const std::string& name, const Place& copy, bool in) {
    const Place whole = place_of(whole_, name);
    const auto [b, h, s, d] = whole.dims;
    const std::int64_t threads = b * h * s * (d / kVector);
    codegen::KernelText kernel;
    const std::string from = kernel.read(in ? name : copy_name(name), whole_.dtype);
    const std::string to =
        kernel.write(in ? copy_name(name) : name, whole_.dtype, "rows in tile order");
    const auto place = [](const Dims4& strides) {
      return fmt::format("b * {}LL + h * {}LL + s * {}LL + d * {}LL", strides[0], strides[1],
                         strides[2], kVector);
    };
    kernel.add(fmt::format(
        "  if (i >= {0}LL) return;\n"
        "  const {1} n = i, d = n % {2}, h = n / {2} % {3}, s = n / {2} / {3} % {4}, "
        "b = n / {2} / {3} / {4};\n"
        "  *reinterpret_cast<uint4*>({5} + {6}) = *reinterpret_cast<const uint4*>({7} + {8});\n",
        threads, threads <= UINT32_MAX ? "unsigned" : "unsigned long long", d / kVector, h, s, to,
        place((in ? copy : whole).strides), from, place((in ? whole : copy).strides)));
    if (in) add_internal(copy_name(name), whole_.dtype, {b, h, s, d});
    add(std::move(kernel).finish(false));
  }

  // The tensor here that the entries' program calls `name`.
  std::string mapped(const std::string& name) const {
    const auto* output = std::ranges::find(ir::kOutputs, name, &ir::Output::name);
    const bool is_bound_statistic = output != std::end(ir::kOutputs) && name != "o";
    const bool apart = (is_bound_statistic && !tiled_.by_head) ||
                       (name == "q" && tiled_.copies_q) || (name == "o" && tiled_.copies_o);
    return apart ? copy_name(name) : name;
  }

  void append() {
    if (tiled_.copies_o) {
      const Dims4 dims = logical_dims(whole_, "o");
      add_internal(copy_name("o"), whole_.dtype, {dims.begin(), dims.end()});
    }
    for (const plan::TensorInfo& internal : inner_.internals) {
      program_.internals.push_back(internal);
    }
    for (plan::Step& step : inner_.steps) {
      plan::change_tensors(
          step, [this](plan::TensorOperand& tensor) { tensor.name = mapped(tensor.name); });
      auto* derive = std::get_if<plan::DeriveStep>(&step);
      if (derive == nullptr) {
        program_.steps.push_back(std::move(step));
      } else {
        derive->once |= reads_only_what_is_made_once(*derive);
        add(std::move(*derive));
      }
    }
    program_.params = inner_.params;
  }

  bool reads_only_what_is_made_once(const plan::DeriveStep& step) const {
    return step.amends == 0 && !step.inputs.empty() &&
           std::ranges::all_of(step.inputs, [this](const plan::OperandSource& input) {
             const auto* tensor = std::get_if<plan::TensorOperand>(&input);
             return tensor != nullptr && once_.contains(tensor->name);
           });
  }

  // Reorders statistics from [entries, Hq, tile]; entries by head are already in order.
  void add_statistics() {
    const ir::Dims& d = whole_.dims;
    const std::int64_t count = d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
    codegen::KernelText kernel;
    const auto put = [&](const std::string& name, bool wanted) {
      if (!wanted || tiled_.by_head) return;
      add_internal(copy_name(name), DType::f32, {entries_, d[Dim::Hq], lists_.tile});
      const std::string from = kernel.read(copy_name(name), DType::f32);
      kernel.make(name, DType::f32, count, "in row order",
                  fmt::format("const long long r = i % {0}, t = i / {0} % {1}, h = i / {0} / {1} % "
                              "{2}, b = i / {0} / {1} / {2};\n"
                              "    out[i] = {3}[((b * {1} + t) * {2} + h) * {0} + r];",
                              lists_.tile, lists_.tiles, d[Dim::Hq], from));
    };
    for (const ir::Output& output : ir::kOutputs) {
      if (output.name != "o") put(std::string(output.name), whole_.*output.wanted);
    }
    if (!kernel.empty()) add(std::move(kernel).finish(false));
  }

  void bind() {
    const std::set<std::string> used = plan::names_used(program_.steps);
    program_.tensors = bound_tensors(whole_, used, {});
    program_.params = bound_params(whole_, used);
  }

  const ir::Attention& whole_;
  const Tiled& tiled_;
  const BlockLists& lists_;
  plan::Program inner_, program_;
  std::int64_t entries_;
  std::int64_t heads_;                    // that index entries
  std::int64_t list_heads_, list_count_;  // that index lists; lists
  std::set<std::string> once_;            // tensors made when the plan is loaded
};

}  // namespace

Result<Tiled> tiled(const ir::Attention& whole, const BlockLists& lists,
                    const target::Context& context) {
  return Tiler(whole, lists).run(context);
}

double bytes_moved(const ir::Attention& whole, const Tiled& tiled) {
  const ir::Dims& d = whole.dims;
  const auto rows = static_cast<double>(d[Dim::B] * d[Dim::Hq]) * static_cast<double>(d[Dim::Sq]);
  double elements = 0;  // of 16 bits
  if (tiled.copies_q) elements += static_cast<double>(d[Dim::Dqk]);
  if (tiled.copies_o) elements += static_cast<double>(d[Dim::Dv]);
  if (whole.wants_lse && !tiled.by_head) elements += 2;
  return 2 * 2 * elements * rows;
}

Result<plan::Program> of_block_lists(const ir::Attention& whole, const Tiled& tiled,
                                     plan::Program program) {
  return BlockSparseMaker(whole, tiled, std::move(program)).make();
}

}  // namespace attn::engines
