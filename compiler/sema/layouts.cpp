#include "compiler/sema/layouts.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/print.h"
#include "compiler/sema/names.h"
#include "compiler/support/text.h"
#include "runtime/graph/extent.h"

namespace attn::sema {
namespace {

using diag::Code;
using support::quoted;

constexpr std::string_view kTensorNames[] = {"q", "k", "v", "o"};
constexpr std::string_view kKinds[] = {"bshd", "bhsd",  "sbhd",       "strides",
                                       "thd",  "paged", "packed_qkv", "packed_kv"};
// The tensors of a layout that is given without a tensor; other tensors are bshd.
constexpr std::string_view kPagedTensors[] = {"k", "v"};
constexpr std::string_view kPackedTensors[] = {"q", "k", "v"};
constexpr std::string_view kStrides = "strides";  // an argument of thd and paged
constexpr std::string_view kRows = "rows";        // of paged

std::span<const std::string_view> tensors_of(ir::LayoutKind kind) {
  if (kind == ir::LayoutKind::packed_qkv) return kPackedTensors;
  if (kind == ir::LayoutKind::paged || kind == ir::LayoutKind::packed_kv) return kPagedTensors;
  return kTensorNames;
}

// Reads the arguments of a tensor's layout: strides, or pages.
class LayoutParser {
 public:
  LayoutParser(Environment& environment, diag::Sink& sink)
      : environment_(environment), sink_(sink) {}

 protected:
  std::optional<ir::Layout> parse(const ast::LayoutEntry& entry) {
    const ast::Name& kind = entry.kind;
    if (kind.text == "strides") return strides(entry);
    if (kind.text == "paged") return paged(entry);
    if (kind.text == "thd") return thd(entry);
    if (!contains(kKinds, kind.text)) {
      auto& diagnostic = sink_.report(Code::bad_choice, kind.span,
                                      fmt::format("{} is not a layout", quoted(kind.text)));
      did_you_mean(support::nearest(kind.text, kKinds)).put(diagnostic, kind.span);
      if (diagnostic.help.empty()) diagnostic.help = "expected " + support::one_of(kKinds);
      return std::nullopt;
    }
    if (!entry.arguments.empty()) {
      sink_
          .report(Code::bad_strides, entry.arguments[0].value.span,
                  fmt::format("layout {} takes no arguments", quoted(kind.text)))
          .help = name_of(entry.arguments[0]) == kStrides
                      ? fmt::format("only `thd` and `paged` take `{}`", bound())
                      : "write custom strides as `strides(Sq*Hq*D, D, Hq*D, 1)`";
      return std::nullopt;
    }
    return ir::Layout{*ir::parse_layout_kind(kind.text), {}};
  }

  // paged(page = 64, pages = 1024, tables = 2, strides = bound, rows = fp8_ds_mla)
  std::optional<ir::Layout> paged(const ast::LayoutEntry& entry) {
    ir::Layout layout{ir::LayoutKind::paged, {}};
    bool whole = true;
    for (const ast::LayoutArgument& argument : entry.arguments) {
      const std::string_view name = name_of(argument);
      if (name == kStrides) {
        whole = takes_bound(argument, layout) && whole;
        continue;
      }
      if (name == kRows) {
        whole = takes_rows(argument, layout) && whole;
        continue;
      }
      if (name != "page" && name != "pages" && name != "tables") {
        refuse(entry, argument,
               fmt::format(
                   "its arguments are `{}` (rows per page), `{}` (the number of pages), `{}` (if k "
                   "and v have separate page tables), `{}` (those of the bound tensor) and `{}` "
                   "(rows of several types)",
                   written("page", "64"), written("pages", "1024"), written("tables", "2"), bound(),
                   written_word(kRows, row_formats()[0].name)));
        return std::nullopt;
      }
      const auto value = constant(argument.value, "size", Code::bad_layout);
      whole = whole && value.has_value() && (name != "tables" || is_count(argument, *value));
      set_pages(layout, name, value.value_or(1));
    }
    if (whole && layout.page == 0) {
      sink_.report(Code::bad_layout, entry.kind.span, "`paged` needs the number of rows per page")
          .help = sink_.source().is_json() ? "write `{\"paged\": {\"page\": 64}}`"
                                           : "write `paged(page = 64)`";
      return std::nullopt;
    }
    return whole ? std::optional(layout) : std::nullopt;
  }

  // thd, or thd(strides = bound)
  std::optional<ir::Layout> thd(const ast::LayoutEntry& entry) {
    ir::Layout layout{ir::LayoutKind::thd, {}};
    bool whole = true;
    for (const ast::LayoutArgument& argument : entry.arguments) {
      if (name_of(argument) != kStrides) {
        refuse(entry, argument,
               fmt::format("its argument is `{}` (those of the bound tensor)", bound()));
        return std::nullopt;
      }
      whole = takes_bound(argument, layout) && whole;
    }
    return whole ? std::optional(layout) : std::nullopt;
  }

  static std::string_view name_of(const ast::LayoutArgument& argument) {
    return argument.name ? std::string_view(argument.name->text) : std::string_view();
  }

  // Reports an argument that the layout does not have.
  void refuse(const ast::LayoutEntry& entry, const ast::LayoutArgument& argument,
              std::string help) {
    sink_
        .report(Code::bad_layout, argument.name ? argument.name->span : argument.value.span,
                fmt::format("{} has no argument with this name", quoted(entry.kind.text)))
        .help = std::move(help);
  }

  // strides = bound
  bool takes_bound(const ast::LayoutArgument& argument, ir::Layout& layout) {
    const ast::Expr& value = argument.value;
    layout.bound_strides = value.kind == ast::ExprKind::name && value.text == "bound";
    if (layout.bound_strides) return true;
    sink_
        .report(Code::bad_layout, value.span,
                "strides of rows that other tensors locate are the usual ones, or `bound`")
        .help = fmt::format("write `{}` for those of the bound tensor, or leave it out", bound());
    return false;
  }
  std::string bound() const { return written_word(kStrides, "bound"); }

  // rows = fp8_ds_mla
  bool takes_rows(const ast::LayoutArgument& argument, ir::Layout& layout) {
    const ast::Expr& value = argument.value;
    if (value.kind == ast::ExprKind::name) layout.rows = parse_row_format(value.text);
    if (layout.rows) return true;
    std::vector<std::string_view> names;
    for (const RowFormatInfo& each : row_formats()) names.push_back(each.name);
    auto& diagnostic =
        sink_.report(Code::bad_choice, value.span, "there is no such format of rows");
    if (value.kind == ast::ExprKind::name)
      did_you_mean(support::nearest(value.text, names)).put(diagnostic, value.span);
    if (diagnostic.help.empty()) diagnostic.help = "expected " + support::one_of(names);
    return false;
  }

  // An argument whose value is a word, as the source writes it.
  std::string written_word(std::string_view name, std::string_view value) const {
    return written(name,
                   sink_.source().is_json() ? fmt::format("\"{}\"", value) : std::string(value));
  }

  // An argument, as the source writes it.
  std::string written(std::string_view name, std::string_view value) const {
    return sink_.source().is_json() ? fmt::format("\"{}\": {}", name, value)
                                    : fmt::format("{} = {}", name, value);
  }

  static void set_pages(ir::Layout& layout, std::string_view name, std::int64_t value) {
    (name == "page" ? layout.page : name == "pages" ? layout.pages : layout.tables) = value;
  }

  // Whether the value is a valid number of page tables.
  bool is_count(const ast::LayoutArgument& argument, std::int64_t value) {
    if (value <= 2) return true;
    sink_
        .report(Code::bad_layout, argument.value.span,
                fmt::format("k and v have 1 shared page table or 2, not {}", value))
        .help = fmt::format("`{}` gives each a page table: `page_table_k` and `page_table_v`",
                            written("tables", "2"));
    return false;
  }

  std::optional<ir::Layout> strides(const ast::LayoutEntry& entry) {
    ir::Layout layout{ir::LayoutKind::strided, {}};
    for (const ast::LayoutArgument& argument : entry.arguments) {
      if (!argument.name) continue;
      sink_.report(Code::bad_strides, argument.name->span, "strides are not named").help =
          "list those of batch, head, sequence and feature, in this order";
      return std::nullopt;
    }
    if (entry.arguments.size() != layout.strides.size()) {
      sink_
          .report(Code::bad_strides, entry.kind.span,
                  fmt::format("expected four strides, found {}", entry.arguments.size()))
          .help =
          "list those of batch, head, sequence and feature, in elements: `strides(Sq*Hq*D, D, "
          "Hq*D, 1)`";
      return std::nullopt;
    }
    bool whole = true;
    for (std::size_t i = 0; i < layout.strides.size(); ++i) {
      const auto value = constant(entry.arguments[i].value, "stride", Code::bad_strides, 0);
      layout.strides[i] = value.value_or(0);
      whole = whole && value.has_value();
    }
    return whole ? std::optional(layout) : std::nullopt;
  }

  // The value of a constant from `least` on, 1 or 0.
  std::optional<std::int64_t> constant(const ast::Expr& expr, std::string_view what, Code code,
                                       std::int64_t least = 1) {
    const auto lookup = [&](const std::string& name, support::Span span) {
      return environment_.lookup(name, span, sink_);
    };
    const Known known = evaluate(expr, lookup, sink_);
    if (known.state == Known::State::poisoned) return std::nullopt;
    if (known.state == Known::State::open) {
      sink_
          .report(Code::size_needed, expr.span,
                  fmt::format("this {} depends on {}, which has no size", what,
                              quoted(known.dimension)))
          .help = fmt::format("give it a size, or compile with `--bind {}=...`", known.dimension);
      return std::nullopt;
    }
    const auto value = known.integer();
    if (value && *value >= least) return value;
    sink_.report(
        code, expr.span,
        fmt::format("a {} must be a positive integer{}", what, least == 0 ? ", or 0" : ""));
    return std::nullopt;
  }

  Environment& environment_;
  diag::Sink& sink_;
};

class Layouts : private LayoutParser {
 public:
  Layouts(Environment& environment, diag::Sink& sink) : LayoutParser(environment, sink) {
    for (const std::string_view tensor : kTensorNames) result_.emplace(tensor, ir::Layout{});
  }

  std::map<std::string, ir::Layout, std::less<>> run(const ast::LayoutClause* clause) {
    if (clause) {
      for (const ast::LayoutEntry& entry : clause->entries) add(entry);
    }
    return std::move(result_);
  }

 private:
  void add(const ast::LayoutEntry& entry) {
    const std::optional<ir::Layout> layout = parse(entry);
    if (!entry.tensor) {
      if (!layout) return;
      for (const std::string_view tensor : tensors_of(layout->kind)) {
        set(entry, std::string(tensor), layout);
      }
      return;
    }
    const ast::Name& tensor = *entry.tensor;
    if (!contains(kTensorNames, tensor.text)) {
      sink_
          .report(Code::bad_choice, tensor.span,
                  fmt::format("{} has no layout", quoted(tensor.text)))
          .help = "expected " + support::one_of(kTensorNames);
      return;
    }
    const auto [first, added] = seen_.emplace(tensor.text, tensor.span);
    if (!added) {
      sink_
          .report(Code::duplicate_name, tensor.span,
                  fmt::format("the layout of {} is given twice", quoted(tensor.text)))
          .labels.push_back({first->second, "first here"});
    }
    if (layout && !fits(entry, *layout)) return;
    set(entry, tensor.text, layout);
  }

  // Whether a single tensor may have the layout.
  bool fits(const ast::LayoutEntry& entry, const ir::Layout& layout) {
    using Kind = ir::LayoutKind;
    const bool shared = layout.kind == Kind::packed_qkv || layout.kind == Kind::packed_kv;
    const bool wrong = layout.kind == Kind::paged && !contains(kPagedTensors, entry.tensor->text);
    if (!shared && !wrong) return true;
    sink_
        .report(Code::bad_layout, entry.kind.span,
                shared ? fmt::format("{} is a layout for several tensors", quoted(entry.kind.text))
                       : fmt::format("{} cannot be paged", quoted(entry.tensor->text)))
        .help =
        ast::hint_for(sink_.source(), shared ? fmt::format("write `layout {};`", entry.kind.text)
                                             : "only `k` and `v` can be paged");
    return false;
  }

  void set(const ast::LayoutEntry& entry, const std::string& tensor,
           const std::optional<ir::Layout>& layout) {
    if (!layout) return;
    result_[tensor] = *layout;
    if (tensor == "o" && is_repeated(entry, *layout)) return;
    if (tensor == "o" && layout->kind == ir::LayoutKind::strided && is_overlapping(*layout)) {
      sink_.report(Code::bad_strides, entry.kind.span, "two elements of `o` have the same address");
    }
  }

  // Whether the layout stores elements once that an output has several times.
  bool is_repeated(const ast::LayoutEntry& entry, const ir::Layout& layout) {
    if (layout.kind != ir::LayoutKind::strided) return false;
    const auto zero = std::ranges::find(layout.strides, 0);
    if (zero == layout.strides.end()) return false;
    const auto at = static_cast<std::size_t>(zero - layout.strides.begin());
    sink_
        .report(Code::bad_strides, entry.arguments[at].value.span,
                "`o` is written, so none of its strides may be 0")
        .help =
        "only `q`, `k` and `v` may have a stride of 0, with which all of a dimension read "
        "the same elements";
    return true;
  }

  // False while a dimension is open; checked again once it is bound.
  bool is_overlapping(const ir::Layout& layout) const {
    std::vector<std::int64_t> sizes;
    for (const ir::Dim dim : {ir::Dim::B, ir::Dim::Hq, ir::Dim::Sq, ir::Dim::Dv}) {
      const auto size = environment_.dims.get(dim);
      if (!size) return false;
      sizes.push_back(*size);
    }
    return overlaps(sizes, layout.strides);
  }

  std::map<std::string, ir::Layout, std::less<>> result_;
  std::map<std::string, support::Span, std::less<>> seen_;
};

}  // namespace

std::map<std::string, ir::Layout, std::less<>> make_layouts(const ast::LayoutClause* clause,
                                                            Environment& environment,
                                                            diag::Sink& sink) {
  return Layouts(environment, sink).run(clause);
}

}  // namespace attn::sema
