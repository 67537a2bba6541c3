#include "compiler/sema/gather.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/print.h"
#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Dim;
using support::quoted;

// What a tensor of the clause is, in the words of a declaration.
struct ListShape {
  std::string_view what;
  std::string_view shape;
  std::size_t rank;
};
constexpr ListShape kListedKeys{"the keys of each row", "[B, Sq, N]", 3};
constexpr ListShape kListedCounts{"the number of keys of each row", "[B, Sq]", 2};

struct NoGather {
  std::string_view word, what, help;
};
constexpr std::string_view kAsMask =
    "say which keys are seen by a `mask`, as in `any(n in 0..16: chosen[b, q_idx, n] == kv_idx)`, "
    "where rows see few keys";
constexpr NoGather kNoGather[] = {
    {"grad", "an attention over gathered keys has no gradients", kAsMask},
    {"branch", "a spec with branches gathers no keys",
     "compute this attention by a spec of its own, and merge by `lse`"},
    {"quantize", "8-bit attention gathers no keys", "use `dtype bf16;` without `quantize`"},
    {"dropout", "a key may be gathered twice, and dropout has one number for it",
     "leave out `dropout`: gathered keys are for inference"},
    {"prologue", "a prologue is computed of all rows, before keys are gathered",
     "apply it before q and k are stored"}};

class GatherOf {
 public:
  GatherOf(const ast::Spec& spec, const ast::Clause& clause, ir::Attention& attention, Scope& scope,
           diag::Sink& sink)
      : spec_(spec),
        clause_(clause),
        gather_(std::get<ast::GatherClause>(clause.body)),
        attention_(attention),
        scope_(scope),
        sink_(sink) {}

  void set() {
    for (const ast::Clause& other : spec_.clauses) {
      for (const NoGather& each : kNoGather) {
        if (other.keyword.text == each.word) refuse(other.keyword.span, each);
      }
    }
    const bool has_keys = is_fit(gather_.keys, kListedKeys);
    const bool has_counts = !gather_.counts || is_fit(*gather_.counts, kListedCounts);
    if (!has_keys || !has_counts) return;
    const support::Place at = sink_.source().place(clause_.keyword.span.begin);
    attention_.gather = ir::Gather{
        gather_.keys.text, gather_.counts ? gather_.counts->text : "", {at.line, at.column}};
  }

 private:
  void refuse(support::Span span, const NoGather& each) {
    auto& diagnostic = sink_.report(Code::not_available_here, span, std::string(each.what));
    diagnostic.help = ast::hint_for(sink_.source(), std::string(each.help));
    diagnostic.labels.push_back({clause_.keyword.span, "keys are gathered here"});
  }

  // Whether the tensor is declared as it must be; if not, reports it.
  bool is_fit(const ast::Name& name, const ListShape& wanted) {
    if (!scope_.use_tensor(name)) {
      report(Code::unknown_name, name,
             fmt::format("{} is not a tensor of the spec", quoted(name.text)), wanted);
      return false;
    }
    const ir::CapturedTensor* tensor = attention_.find_tensor(name.text);
    if (tensor == nullptr) return false;  // reported
    if (tensor->learned || tensor->dtype != DType::i32) {
      report(Code::bad_value, name,
             fmt::format("{} is {}, and not a `tensor` of i32", quoted(name.text),
                         to_string(tensor->dtype)),
             wanted);
      return false;
    }
    if (tensor->extents.size() != wanted.rank) {
      report(Code::bad_value, name,
             fmt::format("{} has {} dimensions, not {}", quoted(name.text), tensor->extents.size(),
                         wanted.rank),
             wanted);
      return false;
    }
    return has_extent(name, *tensor, 0, Dim::B, wanted) &&
           has_extent(name, *tensor, 1, Dim::Sq, wanted);
  }

  bool has_extent(const ast::Name& name, const ir::CapturedTensor& tensor, std::size_t axis,
                  Dim dim, const ListShape& wanted) {
    ir::Dag& dag = attention_.dag;
    const auto size = attention_.dims.get(dim);
    const auto given = ir::fold_integer(dag, tensor.extents[axis]);
    const bool is_same =
        size ? given == size : tensor.extents[axis] == dag.dim(std::string(to_string(dim)));
    if (is_same) return true;
    report(Code::bad_size, name,
           given && size ? fmt::format("dimension {} of {} is {}, and {} is {}", axis,
                                       quoted(name.text), *given, to_string(dim), *size)
                         : fmt::format("dimension {} of {} is not {}", axis, quoted(name.text),
                                       to_string(dim)),
           wanted);
    return false;
  }

  void report(Code code, const ast::Name& name, std::string what, const ListShape& wanted) {
    sink_.report(code, name.span, std::move(what)).help = ast::hint_for(
        sink_.source(),
        fmt::format("declare {} by `tensor {}: i32{};`", wanted.what, name.text, wanted.shape));
  }

  const ast::Spec& spec_;
  const ast::Clause& clause_;
  const ast::GatherClause& gather_;
  ir::Attention& attention_;
  Scope& scope_;
  diag::Sink& sink_;
};

}  // namespace

void set_gather(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink) {
  const auto found = std::ranges::find_if(spec.clauses, [](const ast::Clause& clause) {
    return std::holds_alternative<ast::GatherClause>(clause.body);
  });
  if (found != spec.clauses.end()) GatherOf(spec, *found, attention, scope, sink).set();
}

bool Scope::use_tensor(const ast::Name& name) {
  const auto found = symbols_.find(name.text);
  if (found == symbols_.end()) return false;
  found->second.used = true;
  return found->second.kind == Symbol::Kind::tensor || found->second.kind == Symbol::Kind::poisoned;
}

}  // namespace attn::sema
