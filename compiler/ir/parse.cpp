#include <fmt/format.h>

#include "compiler/ir/parse_lines.h"

namespace attn::ir {
namespace {

// Reads the lines in the order of to_text. Nodes keep their printed numbers, so operands are
// checked when they are read; extents are checked at the end.
class TextParser : private TensorLines {
 public:
  // The number of the line before the first.
  explicit TextParser(std::size_t before) : before_(before) {}

  Result<Attention> parse(std::string_view text) {
    std::size_t number = before_;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      Scanner line(text.substr(0, end), ++number);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!line.at_end()) ATTN_RETURN_IF_ERROR(statement(line));
    }
    return finish(Scanner({}, number));
  }

 private:
  Status statement(Scanner& line) {
    if (closed_) return line.error("text after the closing '}'");
    if (!opened_) return open(line);
    ATTN_RETURN_IF_ERROR(content(line));
    return line.at_end() ? Status() : line.error("text after the end of the statement");
  }

  Status open(Scanner& line) {
    ATTN_RETURN_IF_ERROR(line.expect("attention"));
    ATTN_ASSIGN(out_.name, line.word());
    opened_ = true;
    return line.expect("{");
  }

  Status content(Scanner& line) {
    if (line.accept("}")) return close();
    if (line.accept("%")) return node(line);
    if (line.accept("scale")) return root(line, has_scale_, out_.scale);
    if (line.accept("score")) return root(line, has_score_, out_.score);
    if (line.accept("mask")) return mask(line);
    if (line.accept("dims")) return dims(line);
    if (line.accept("dtype")) return dtype(line, out_.dtype);
    if (line.accept("layout")) return layouts(line);
    if (line.accept("align")) return align(line);
    if (line.accept("tensor")) return tensor(line, false);
    if (line.accept("learn")) return tensor(line, true);
    if (line.accept("sum")) return sum(line);
    if (line.accept("param")) return param(line);
    if (line.accept("outputs")) return outputs(line);
    if (line.accept("sink")) return optional_root(line, out_.sink);
    if (line.accept("epilogue")) return optional_root(line, out_.epilogue);
    if (line.accept("dropout")) return dropout(line);
    if (line.accept("prologue")) return prologue(line);
    if (line.accept("lengths")) return lengths(line);
    if (line.accept("values_of_keys")) return set(out_.values_of_keys);
    if (line.accept("gather")) return gather(line);
    if (line.accept("grad")) return gradients(line);
    if (line.accept("normalize")) return normalize(line);
    if (line.accept("quotient")) return quotient(line);
    if (line.accept("quantize")) return quantize(line);
    if (line.accept("cache")) return cache(line);
    if (line.accept("deterministic")) return set(out_.deterministic);
    if (line.accept("partial")) return set(out_.partial);
    if (line.accept("shard")) return shard(line);
    if (line.accept("branch")) return branch(line);
    if (line.accept("beside")) return beside(line);
    return line.error(fmt::format("'{}' does not start a statement", line.next()));
  }

  Status close() {
    closed_ = true;
    return {};
  }

  Status root(Scanner& line, bool& is_set, ExprId& id) {
    ATTN_ASSIGN(id, node_id(line));
    if (is_set) return line.error("given twice");
    is_set = true;
    return {};
  }

  Status mask(Scanner& line) {
    ATTN_ASSIGN(const ExprId id, node_id(line));
    out_.masks.push_back(id);
    return {};
  }

  Status outputs(Scanner& line) {
    for (const Output& output : kOutputs) out_.*output.wanted = line.accept(output.name);
    out_.wants_branches = line.accept("branches");
    return {};
  }

  Status beside(Scanner& line) {
    ATTN_ASSIGN(out_.branch, line.word());
    return {};
  }

  Status optional_root(Scanner& line, std::optional<ExprId>& id) {
    if (id) return line.error("given twice");
    ATTN_ASSIGN(id, node_id(line));
    return {};
  }

  Status dropout(Scanner& line) {
    if (out_.dropout) return line.error("given twice");
    Dropout& dropout = out_.dropout.emplace();
    ATTN_ASSIGN(dropout.probability, line.real());
    if (line.accept("origin")) return origin(line, dropout.origin.emplace());
    return line.accept("keep") ? optional_root(line, dropout.keep) : Status();
  }

  Status origin(Scanner& line, Dropout::Origin& origin) {
    ATTN_ASSIGN(origin.head, node_id(line));
    ATTN_RETURN_IF_ERROR(line.expect(","));
    ATTN_ASSIGN(origin.row, node_id(line));
    ATTN_RETURN_IF_ERROR(line.expect(","));
    ATTN_ASSIGN(origin.column, node_id(line));
    return {};
  }

  Status prologue(Scanner& line) {
    const bool is_q = line.accept("q");
    if (!is_q) ATTN_RETURN_IF_ERROR(line.expect("k"));
    std::optional<Prologue>& prologue = is_q ? out_.prologue_q : out_.prologue_k;
    if (prologue) return line.error("given twice");
    ATTN_ASSIGN(prologue.emplace().value, node_id(line));
    ATTN_ASSIGN(prologue->sums, operands(line));
    return {};
  }

  Status lengths(Scanner& line) {
    out_.lengths_q = line.accept("q");
    out_.lengths_kv = line.accept("kv");
    return {};
  }

  Status gather(Scanner& line) {
    if (out_.gather) return line.error("given twice");
    Gather& gather = out_.gather.emplace();
    ATTN_ASSIGN(gather.keys, line.word());
    if (line.at_end()) return {};
    ATTN_ASSIGN(gather.counts, line.word());
    return {};
  }

  Status gradients(Scanner& line) {
    while (!line.at_end()) {
      ATTN_ASSIGN(const std::string_view name, line.word());
      if (name == "lse") {
        out_.reads_d_lse = true;
      } else {
        out_.gradients.emplace_back(name);
      }
    }
    return {};
  }

  Status normalize(Scanner& line) {
    ATTN_ASSIGN(const std::string_view word, line.word());
    const std::optional<Normalize> found = parse_normalize(word);
    if (!found) return line.error(fmt::format("'{}' is not sigmoid, linear or quotient", word));
    out_.normalize = *found;
    return {};
  }

  Status quotient(Scanner& line) {
    if (out_.quotient) return line.error("given twice");
    Quotient& quotient = out_.quotient.emplace();
    ATTN_ASSIGN(quotient.f, node_id(line));
    ATTN_RETURN_IF_ERROR(line.expect(","));
    ATTN_ASSIGN(quotient.g, node_id(line));
    quotient.exponential = line.accept("exponential");
    return {};
  }

  Status shard(Scanner& line) {
    ATTN_ASSIGN(const std::string_view word, line.word());
    out_.shard = parse_shard(word);
    if (!out_.shard) return line.error(fmt::format("'{}' cannot be sharded", word));
    return {};
  }

  Result<Attention> finish(const Scanner& end) {
    if (!closed_) return end.error("the closing '}' is missing");
    if (!has_scale_ || !has_score_) return end.error("scale or score is missing");
    for (const CapturedTensor& tensor : out_.tensors) {
      Numbers roots = tensor.extents;
      for (const auto& root : {tensor.fallback, tensor.runs, tensor.longest_run}) {
        if (root) roots.push_back(*root);
      }
      ATTN_RETURN_IF_ERROR(defined(end, tensor, roots));
    }
    for (const Branch& branch : out_.branches)
      ATTN_RETURN_IF_ERROR(defined(end, branch.o, branch.o.extents));
    for (const KeySum& sum : out_.sums) {
      Numbers roots = sum.tensor.extents;
      roots.push_back(sum.value);
      ATTN_RETURN_IF_ERROR(defined(end, sum.tensor, roots));
    }
    return std::move(out_);
  }

  Status defined(const Scanner& end, const CapturedTensor& tensor, const Numbers& roots) const {
    for (const ExprId root : roots) {
      if (root >= out_.dag.size()) {
        return end.error(fmt::format("tensor {}: %{} is not defined", tensor.name, root));
      }
    }
    return {};
  }

  std::size_t before_;
  bool opened_ = false;
  bool closed_ = false;
  bool has_scale_ = false;
  bool has_score_ = false;
};

}  // namespace

// The texts of branches follow that of the attention, in their order.
Result<Attention> parse(std::string_view text) {
  std::size_t lines = 0;
  const auto next = [&]() -> Result<Attention> {
    const std::size_t close = text.find("\n}\n");
    const std::size_t size = close == text.npos ? text.size() : close + 3;
    const std::string_view one = text.substr(0, size);
    text.remove_prefix(size);
    Result<Attention> parsed = TextParser(lines).parse(one);
    lines += static_cast<std::size_t>(std::ranges::count(one, '\n'));
    return parsed;
  };
  ATTN_ASSIGN(Attention whole, next());
  for (Branch& branch : whole.branches) {
    ATTN_ASSIGN(branch.attention, next());
    if (output_of_branch(branch.attention.branch) != branch.o.name)
      return Scanner({}, lines).error("expected the branch of " + branch.o.name);
  }
  if (text.find_first_not_of(" \t\r\n") != text.npos)
    return Scanner({}, lines + 1).error("text after the closing '}'");
  return whole;
}

}  // namespace attn::ir
