#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/ir/attention.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/ir/text.h"

namespace attn::ir {
namespace {

class TextWriter {
 public:
  explicit TextWriter(const Attention& attention)
      : attention_(attention), dag_(attention.dag), numbers_(attention.dag.size()) {
    ids_ = reachable(dag_, attention.roots());
    for (std::size_t i = 0; i < ids_.size(); ++i) numbers_[ids_[i]] = i;
  }

  std::string write() && {
    header();
    for (ExprId id : ids_) node(id);
    footer();
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += "  " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  std::string number(ExprId id) const { return fmt::format("%{}", numbers_[id]); }

  std::string numbers(const std::vector<ExprId>& ids) const {
    std::string text;
    for (ExprId id : ids) text += (text.empty() ? "" : ", ") + number(id);
    return text;
  }

  void header() {
    text_ = fmt::format("attention {} {{\n", attention_.name);
    std::string dims;
    for (Dim dim : kDims) {
      const auto size = attention_.dims.get(dim);
      dims += fmt::format(" {}={}", to_string(dim), size ? std::to_string(*size) : "?");
    }
    line("dims{}", dims);
    line("dtype {}", to_string(attention_.dtype));
    std::string layouts;
    for (const auto& [name, layout] : attention_.layouts) {
      layouts += fmt::format(" {}={}", name, layout_text(layout));
    }
    line("layout{}", layouts);
    line("align {}", to_string(attention_.align));
    for (const CapturedTensor& tensor : attention_.tensors) {
      line("{} {}: {}[{}]{}{}{}{}", tensor.learned ? "learn" : "tensor", tensor.name,
           to_string(tensor.dtype), numbers(tensor.extents), tensor.computed ? " computed" : "",
           tensor.monotone ? " monotone" : "", runs_text(tensor),
           tensor.fallback ? " = " + number(*tensor.fallback) : "");
    }
    for (const KeySum& sum : attention_.sums) {
      line("sum {}: f32[{}]{}{}{} = {}", sum.tensor.name, numbers(sum.tensor.extents),
           sum.of_batch ? " b" : "", sum.of_head ? " h" : "", sum.tensor.learned ? " learned" : "",
           number(sum.value));
    }
    for (const Branch& branch : attention_.branches) {
      line("branch {}: {}[{}]{}", branch.attention.branch, to_string(branch.o.dtype),
           numbers(branch.o.extents), inputs_text(branch));
    }
    for (const Param& param : attention_.params) {
      line("param {}: {}", param.name, to_string(param.dtype));
    }
  }

  static std::string inputs_text(const Branch& branch) {
    std::string text;
    for (const auto& [name, by] : branch.inputs) text += fmt::format(" {}={}", name, by);
    return text;
  }

  std::string runs_text(const CapturedTensor& tensor) const {
    if (!tensor.runs) return "";
    const std::string most = number(*tensor.runs);
    if (!tensor.longest_run) return fmt::format(" runs({})", most);
    return fmt::format(" runs({}, {})", most, number(*tensor.longest_run));
  }

  static std::string layout_text(const Layout& layout) {
    std::string text(to_string(layout.kind));
    if (layout.kind == LayoutKind::paged) {
      const std::string tables = layout.tables == 1 ? "" : fmt::format(",{}", layout.tables);
      const std::string rows = layout.rows ? fmt::format(",{}", to_string(*layout.rows)) : "";
      return fmt::format("{}({},{}{}{}{})", text, layout.page, layout.pages, tables, rows,
                         layout.bound_strides ? ",bound" : "");
    }
    if (layout.bound_strides) return text + "(bound)";
    const auto& strides = layout.strides;
    const bool has_strides =
        layout.kind == LayoutKind::strided || (layout.kind == LayoutKind::thd && strides[2] != 0);
    if (!has_strides) return text;
    return fmt::format("{}({},{},{},{})", text, strides[0], strides[1], strides[2], strides[3]);
  }

  void node(ExprId id) {
    const Node& node = dag_[id];
    std::string arguments = attribute_text(node.attribute);
    if (!node.operands.empty()) {
      arguments += (arguments.empty() ? "" : ", ") + numbers(node.operands);
    }
    line("{}: {} = {}{}{}", number(id), to_string(node.type), info(node.op).name,
         arguments.empty() ? "" : " ", arguments);
  }

  static std::string attribute_text(const Attribute& attribute) {
    if (const auto* value = std::get_if<bool>(&attribute)) return *value ? "true" : "false";
    if (const auto* value = std::get_if<std::int64_t>(&attribute)) return std::to_string(*value);
    if (const auto* value = std::get_if<double>(&attribute)) return real_text(*value);
    if (const auto* value = std::get_if<std::string>(&attribute)) return *value;
    return {};
  }

  void footer() {
    line("scale {}", number(attention_.scale));
    line("score {}", number(attention_.score));
    for (ExprId mask : attention_.masks) line("mask {}", number(mask));
    if (attention_.sink) line("sink {}", number(*attention_.sink));
    if (attention_.epilogue) line("epilogue {}", number(*attention_.epilogue));
    if (attention_.dropout) dropout(*attention_.dropout);
    prologue("q", attention_.prologue_q);
    prologue("k", attention_.prologue_k);
    if (attention_.values_of_keys) line("values_of_keys");
    if (const auto& gather = attention_.gather)
      line("gather {}{}", gather->keys, gather->counts.empty() ? "" : " " + gather->counts);
    if (attention_.lengths_q || attention_.lengths_kv) {
      line("lengths{}{}", attention_.lengths_q ? " q" : "", attention_.lengths_kv ? " kv" : "");
    }
    if (!attention_.is_softmax()) line("normalize {}", to_string(attention_.normalize));
    if (const auto& quotient = attention_.quotient) {
      line("quotient {}, {}{}", number(quotient->f), number(quotient->g),
           quotient->exponential ? " exponential" : "");
    }
    if (const auto& quantize = attention_.quantize) {
      line("quantize{} o={} do={} gradients={}",
           attention_.is_mxfp8() ? fmt::format(" {}", to_string(quantize->by)) : std::string(),
           to_string(quantize->o), to_string(quantize->d_o), to_string(quantize->gradients));
    }
    if (const auto& cache = attention_.cache) {
      line("cache {} k={} v={}", to_string(cache->by), to_string(cache->k), to_string(cache->v));
    }
    line("outputs{}", outputs());
    if (!attention_.gradients.empty()) {
      line("grad {}{}", fmt::join(attention_.gradients, " "), attention_.reads_d_lse ? " lse" : "");
    }
    if (attention_.deterministic) line("deterministic");
    if (attention_.partial) line("partial");
    if (attention_.shard) line("shard {}", to_string(*attention_.shard));
    if (!attention_.branch.empty()) line("beside {}", attention_.branch);
    text_ += "}\n";
    for (const Branch& branch : attention_.branches) text_ += to_text(branch.attention);
  }

  void prologue(std::string_view tensor, const std::optional<Prologue>& prologue) {
    if (!prologue) return;
    line("prologue {} {}{}{}", tensor, number(prologue->value), prologue->sums.empty() ? "" : ", ",
         numbers(prologue->sums));
  }

  std::string outputs() const {
    std::string text;
    for (const Output& output : kOutputs) {
      if (attention_.*output.wanted) text += fmt::format(" {}", output.name);
    }
    if (attention_.wants_branches) text += " branches";
    return text;
  }

  void dropout(const Dropout& dropout) {
    line("dropout {}{}", real_text(dropout.probability),
         dropout.keep     ? " keep " + number(*dropout.keep)
         : dropout.origin ? " origin " + numbers({dropout.origin->head, dropout.origin->row,
                                                  dropout.origin->column})
                          : "");
  }

  const Attention& attention_;
  const Dag& dag_;
  std::vector<ExprId> ids_;
  std::vector<std::size_t> numbers_;
  std::string text_;
};

}  // namespace

std::string to_text(const Attention& attention) { return TextWriter(attention).write(); }

}  // namespace attn::ir
