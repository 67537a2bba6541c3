#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "compiler/ir/attention.h"
#include "compiler/ir/block_scales.h"
#include "compiler/ir/cache_scales.h"

namespace attn::ir {
namespace {

// What a root may contain.
struct Allowed {
  bool score = false;
  bool index = false;      // batch, head, row, column and loads
  bool sums = false;       // loads of sums along keys
  std::string_view row{};  // the tensor of whose rows elements are loaded
  bool params = false;
  bool element = false;  // the indexes of a tensor element
  bool unit = false;
  bool keys = true;     // of the indexes, the column
  bool output = false;  // elements of o and their columns
};

// Verifies nodes, and what each root may read.
class RootVerifier {
 public:
  explicit RootVerifier(const Attention& attention) : attention_(attention), dag_(attention.dag) {}

 protected:
  static Error bug(std::string message) {
    return {ErrorCode::internal, "invalid IR: " + std::move(message)};
  }

  Status root_ids() {
    for (ExprId id : attention_.roots()) {
      if (id >= dag_.size()) return bug(fmt::format("root %{} does not exist", id));
    }
    return {};
  }

  Status node(ExprId id) {
    const Node& node = dag_[id];
    const OpInfo& op = info(node.op);
    std::vector<Type> types;
    for (ExprId operand : node.operands) {
      if (operand >= id) return bug(fmt::format("%{} uses %{}", id, operand));
      types.push_back(dag_[operand].type);
    }
    if (op.operands >= 0 && types.size() != static_cast<std::size_t>(op.operands)) {
      return bug(fmt::format("%{}: {} with {} operands", id, op.name, types.size()));
    }
    if (op.rule == Rule::symbol_type) return symbol(id, node);
    if (result_type(op.rule, types) != node.type) {
      return bug(fmt::format("%{}: types do not fit {}", id, op.name));
    }
    if (node.is(Op::const_int_)) return integer(dag_.integer_of(id));
    if (node.is(Op::dim_) && !parse_dim(dag_.symbol_of(id))) {
      return bug(dag_.symbol_of(id) + " is not a dimension");
    }
    return {};
  }

  static Status integer(std::int64_t value) {
    using Limits = std::numeric_limits<std::int32_t>;
    if (value >= Limits::min() && value <= Limits::max()) return {};
    return bug(fmt::format("{} does not fit in 32 bits", value));
  }

  Status symbol(ExprId id, const Node& node) {
    const std::string& name = dag_.symbol_of(id);
    if (node.is(Op::param_)) {
      const Param* param = attention_.find_param(name);
      if (param == nullptr) return bug(name + " is not a param");
      return node.type == value_type(param->dtype) ? Status() : bug("type of param " + name);
    }
    if (name == "q" || name == "k") return of_row(node, name);
    const CapturedTensor* tensor = attention_.find_tensor(name);
    if (tensor == nullptr) return bug(name + " is not a tensor");
    if (node.type != value_type(tensor->dtype)) return bug("type of tensor " + name);
    if (node.operands.size() != tensor->extents.size()) return bug("rank of tensor " + name);
    for (ExprId index : node.operands) {
      if (dag_[index].type != Type::integer) return bug("an index of " + name + " is not an int");
    }
    return {};
  }

  // An element of a row that a prologue reads.
  Status of_row(const Node& node, const std::string& name) {
    const Op row = name == "q" ? Op::row_ : Op::column_;
    const std::vector<ExprId>& at = node.operands;
    const bool fits = node.type == Type::real && at.size() == 4 && dag_[at[0]].is(Op::batch_) &&
                      dag_[at[1]].is(Op::head_) && dag_[at[2]].is(row) &&
                      dag_[at[3]].type == Type::integer;
    return fits ? Status() : bug("an element of " + name);
  }

  Status prologue(std::string_view tensor, const std::optional<Prologue>& prologue) {
    if (!prologue) return {};
    const Op other = tensor == "q" ? Op::column_ : Op::row_;
    for (std::size_t i = 0; i <= prologue->sums.size(); ++i) {
      const bool is_sum = i < prologue->sums.size();
      const ExprId root = is_sum ? prologue->sums[i] : prologue->value;
      ATTN_RETURN_IF_ERROR(this->root(fmt::format("prologue of {}", tensor), root, Type::real,
                                      {.index = true, .row = tensor, .params = true}));
      for (const ExprId id : reachable(dag_, std::span(&root, 1))) {
        if (dag_[id].is(other))
          return bug(fmt::format("the prologue of {} reads a {}", tensor, info(other).name));
        const bool is_later =
            dag_[id].is(Op::row_sum_) &&
            (dag_.integer_of(id) < 0 || dag_.integer_of(id) >= static_cast<std::int64_t>(i));
        if (is_later) return bug(fmt::format("a sum of the prologue of {}", tensor));
      }
    }
    if (attention_.quantize) return bug("a prologue of 8-bit floats");
    return {};
  }

  Status roots() {
    ATTN_RETURN_IF_ERROR(prologue("q", attention_.prologue_q));
    ATTN_RETURN_IF_ERROR(prologue("k", attention_.prologue_k));
    ATTN_RETURN_IF_ERROR(root("scale", attention_.scale, Type::real, {.params = true}));
    ATTN_RETURN_IF_ERROR(root("score", attention_.score, Type::real,
                              {.score = true, .index = true, .sums = true, .params = true}));
    for (ExprId mask : attention_.masks) {
      ATTN_RETURN_IF_ERROR(root("mask", mask, Type::boolean, {.index = true, .params = true}));
    }
    if (const auto& quotient = attention_.quotient) {
      const Allowed allowed{.score = true, .unit = quotient->exponential};
      ATTN_RETURN_IF_ERROR(root("numerator", quotient->f, Type::real, allowed));
      ATTN_RETURN_IF_ERROR(root("denominator", quotient->g, Type::real, allowed));
    }
    if (attention_.sink) {
      ATTN_RETURN_IF_ERROR(
          root("sink", *attention_.sink, Type::real, {.index = true, .params = true}));
    }
    if (attention_.epilogue) {
      ATTN_RETURN_IF_ERROR(root("epilogue", *attention_.epilogue, Type::real,
                                {.index = true, .params = true, .keys = false, .output = true}));
    }
    ATTN_RETURN_IF_ERROR(dropout());
    for (const KeySum& sum : attention_.sums) ATTN_RETURN_IF_ERROR(this->sum(sum));
    for (const CapturedTensor& tensor : attention_.tensors) {
      ATTN_RETURN_IF_ERROR(fallback(tensor));
      for (const auto& size : {tensor.runs, tensor.longest_run}) {
        if (size) ATTN_RETURN_IF_ERROR(root("runs of " + tensor.name, *size, Type::integer, {}));
      }
      for (ExprId extent : tensor.extents) {
        ATTN_RETURN_IF_ERROR(root("extent of " + tensor.name, extent, Type::integer, {}));
        if (fold_integer(dag_, extent).value_or(1) < (attention_.dims.get(Dim::Skv) == 0 ? 0 : 1)) {
          return bug("an extent of " + tensor.name + " is not positive");
        }
      }
    }
    return {};
  }

  Status dropout() {
    if (!attention_.dropout) return {};
    const Dropout& dropout = *attention_.dropout;
    if (!(dropout.probability >= 0 && dropout.probability < 1)) return bug("dropout probability");
    if (const auto& origin = dropout.origin) {
      if (dropout.keep) return bug("dropout keep with an origin");
      for (const ExprId index : {origin->head, origin->row, origin->column}) {
        ATTN_RETURN_IF_ERROR(root("dropout", index, Type::integer, {.index = true}));
      }
    }
    if (!dropout.keep) return {};
    return root("dropout", *dropout.keep, Type::boolean, {.index = true, .params = true});
  }

  // Its axes are those that it says, and what it sums has no row and no other sum.
  Status sum(const KeySum& sum) {
    const CapturedTensor& tensor = sum.tensor;
    ATTN_RETURN_IF_ERROR(
        root("sum " + tensor.name, sum.value, Type::real, {.index = true, .params = true}));
    const ExprId roots[] = {sum.value};
    for (const ExprId id : reachable(dag_, roots)) {
      const Op op = dag_[id].op;
      const bool is_missing = (op == Op::batch_ && !sum.of_batch) ||
                              (op == Op::head_ && !sum.of_head) || op == Op::row_;
      if (is_missing) return bug(fmt::format("{} in the sum {}", info(op).name, tensor.name));
    }
    const std::size_t rank = 1 + (sum.of_batch ? 1 : 0) + (sum.of_head ? 1 : 0);
    if (tensor.dtype != DType::f32 || tensor.extents.size() != rank)
      return bug("type of the sum " + tensor.name);
    for (const ExprId extent : tensor.extents) {
      ATTN_RETURN_IF_ERROR(root("extent of " + tensor.name, extent, Type::integer, {}));
    }
    return {};
  }

  Status fallback(const CapturedTensor& tensor) {
    if (!tensor.fallback) return {};
    return root("default of " + tensor.name, *tensor.fallback, value_type(tensor.dtype),
                {.element = true});
  }

  Status root(std::string_view name, ExprId root, Type type, Allowed allowed) {
    if (dag_[root].type != type) {
      return bug(fmt::format("{} is not of type {}", name, to_string(type)));
    }
    const ExprId roots[] = {root};
    for (ExprId id : reachable(dag_, roots)) {
      if (!is_allowed(dag_[id].op, allowed)) {
        return bug(fmt::format("{} in the {}", info(dag_[id].op).name, name));
      }
      const bool is_of_row =
          dag_[id].is(Op::load_) && (dag_.symbol_of(id) == "q" || dag_.symbol_of(id) == "k");
      if (is_of_row && dag_.symbol_of(id) != allowed.row)
        return bug(fmt::format("an element of {} in the {}", dag_.symbol_of(id), name));
      const bool is_sum = dag_[id].is(Op::load_) && attention_.find_sum(dag_.symbol_of(id));
      if (is_sum && !allowed.sums) return bug(fmt::format("a sum along keys in the {}", name));
    }
    return {};
  }

  static bool is_allowed(Op op, Allowed allowed) {
    switch (op) {
      case Op::score_: return allowed.score;
      case Op::unit_: return allowed.unit;
      case Op::batch_:
      case Op::head_:
      case Op::row_:
      case Op::load_: return allowed.index;
      case Op::column_: return allowed.index && allowed.keys;
      case Op::output_: return allowed.output;
      case Op::param_: return allowed.params;
      case Op::index_: return allowed.element;
      case Op::depth_: return allowed.output || !allowed.row.empty();
      case Op::row_sum_: return !allowed.row.empty();
      default: return true;
    }
  }

  const Attention& attention_;
  const Dag& dag_;
};

class Verifier : private RootVerifier {
 public:
  using RootVerifier::RootVerifier;

  Status verify() {
    ATTN_RETURN_IF_ERROR(dims());
    ATTN_RETURN_IF_ERROR(layouts());
    ATTN_RETURN_IF_ERROR(names());
    ATTN_RETURN_IF_ERROR(lengths());
    ATTN_RETURN_IF_ERROR(latent());
    ATTN_RETURN_IF_ERROR(quantize());
    ATTN_RETURN_IF_ERROR(cache());
    ATTN_RETURN_IF_ERROR(gradients());
    ATTN_RETURN_IF_ERROR(outputs());
    for (const Branch& branch : attention_.branches) ATTN_RETURN_IF_ERROR(this->branch(branch));
    ATTN_RETURN_IF_ERROR(root_ids());
    for (ExprId id : reachable(dag_, attention_.roots())) ATTN_RETURN_IF_ERROR(node(id));
    return roots();
  }

 private:
  Status dims() {
    for (Dim dim : kDims) {
      if (attention_.dims.get(dim).value_or(1) < (dim == Dim::Skv ? 0 : 1)) {
        return bug(fmt::format("{} is not positive", to_string(dim)));
      }
    }
    const auto hq = attention_.dims.get(Dim::Hq);
    const auto hkv = attention_.dims.get(Dim::Hkv);
    if (hq && hkv && *hq % *hkv != 0) return bug("Hq is not a multiple of Hkv");
    if (is_fp8(attention_.dtype) != attention_.quantize.has_value()) {
      return bug(fmt::format("{} with{} quantize", to_string(attention_.dtype),
                             attention_.quantize ? "" : "out"));
    }
    return attention_.quantize ? Status() : half("q", attention_.dtype);
  }

  static Status half(std::string_view name, DType dtype) {
    if (dtype == DType::f16 || dtype == DType::bf16) return {};
    return bug(fmt::format("dtype {} of {}", to_string(dtype), name));
  }

  Status layouts() {
    for (const char* name : {"q", "k", "v", "o"}) {
      const auto found = attention_.layouts.find(name);
      if (found == attention_.layouts.end()) return bug(fmt::format("no layout of {}", name));
      const Layout& layout = found->second;
      const std::int64_t least = std::string_view(name) == "o" ? 1 : 0;
      const auto is_valid = [least](std::int64_t stride) { return stride >= least; };
      if (layout.kind == LayoutKind::strided && !std::ranges::all_of(layout.strides, is_valid)) {
        return bug(fmt::format("a stride of {} is below {}", name, least));
      }
      const bool may_have_rows = layout.kind == LayoutKind::paged && attention_.values_of_keys;
      if (layout.rows && !may_have_rows) return bug(fmt::format("a format of rows of {}", name));
      if (layout.kind == LayoutKind::paged && (layout.page < 1 || layout.pages < 0)) {
        return bug(fmt::format("the pages of {} have no size", name));
      }
      const bool located = layout.kind == LayoutKind::paged || layout.kind == LayoutKind::thd;
      if (layout.bound_strides && (!located || layout.strides[2] != 0)) {
        return bug(fmt::format("{} has bound strides and others", name));
      }
      if (layout.tables < 1 || layout.tables > 2) {
        return bug(fmt::format("{} has {} page tables", name, layout.tables));
      }
    }
    return attention_.layouts.size() == 4 ? Status() : bug("layout of an unknown tensor");
  }

  Status outputs() {
    const bool needs = std::ranges::any_of(kOutputs, [this](const Output& output) {
      return needs_sink(output.name) && attention_.*output.wanted;
    });
    if (needs && !attention_.sink) return bug("an output that needs a sink, but no sink");
    if ((attention_.wants_amax_s || attention_.wants_amax_o) && !attention_.quantize) {
      return bug("amax without quantize");
    }
    if (attention_.wants_o_inner && !attention_.epilogue) return bug("o_inner without an epilogue");
    if (attention_.wants_branches && attention_.branches.empty()) return bug("no branches");
    if (attention_.quantize && attention_.epilogue) return bug("an epilogue of 8-bit floats");
    const bool divides = attention_.normalize == Normalize::quotient;
    if (divides != attention_.quotient.has_value()) return bug("a quotient's parts");
    if (attention_.is_softmax()) return {};
    if (attention_.quantize) return bug("quantize without softmax");
    if (attention_.sink) return bug("a sink without softmax");
    return (attention_.wants_lse && !divides) || attention_.wants_more_than_lse()
               ? bug("a statistic of softmax without softmax")
               : Status();
  }

  // A branch has the dims of o, and tensors of the whole as its own.
  Status branch(const Branch& branch) {
    const Attention& of = branch.attention;
    if (!attention_.epilogue || attention_.quantize) return bug("branches without an epilogue");
    if (!of.branches.empty() || of.epilogue || of.quantize) return bug("a branch of a branch");
    if (branch.o.name != output_of_branch(of.branch) || branch.o.dtype != attention_.dtype ||
        branch.o.extents.size() != 4 || of.dtype != attention_.dtype)
      return bug("o of the branch " + of.branch);
    for (const Dim dim : {Dim::B, Dim::Hq, Dim::Sq, Dim::Dv}) {
      if (of.dims.get(dim) != attention_.dims.get(dim)) return bug("dims of " + of.branch);
    }
    for (const auto& [name, by] : branch.inputs) {
      const CapturedTensor* tensor = attention_.find_tensor(by);
      const bool is_input = name == "q" || name == "k" || name == "v";
      if (!is_input || tensor == nullptr || tensor->dtype != attention_.dtype)
        return bug(fmt::format("{} of the branch {}", name, of.branch));
    }
    return ir::verify(of);
  }

  Status names() {
    std::set<std::string_view> taken = {"q", "k", "v", "o", "lse"};
    for (const CapturedTensor& tensor : attention_.tensors) {
      if (!taken.insert(tensor.name).second) return bug(tensor.name + " is declared twice");
    }
    for (const KeySum& sum : attention_.sums) {
      if (!taken.insert(sum.tensor.name).second) return bug(sum.tensor.name + " is declared twice");
    }
    for (const Branch& branch : attention_.branches) {
      if (!taken.insert(branch.o.name).second) return bug(branch.o.name + " is declared twice");
    }
    for (const Param& param : attention_.params) {
      if (!taken.insert(param.name).second) return bug(param.name + " is declared twice");
      if (param.dtype != DType::f32 && param.dtype != DType::i32) {
        return bug(fmt::format("param {}: dtype {}", param.name, to_string(param.dtype)));
      }
    }
    return {};
  }

  Status lengths() {
    for (const auto& [wanted, name] : {std::pair(attention_.lengths_q, kLengthsQ),
                                       std::pair(attention_.lengths_kv, kLengthsKv)}) {
      const CapturedTensor* tensor = attention_.find_tensor(name);
      // A view of an epilogue has no lengths of keys, but may read the tensor.
      const bool is_read_alone = !wanted && name == kLengthsKv;
      if (wanted != (tensor != nullptr) && !is_read_alone)
        return bug(fmt::format("{} without its clause", name));
      if (tensor && (tensor->dtype != DType::i32 || tensor->extents.size() != 1)) {
        return bug(fmt::format("{} is not i32[B]", name));
      }
    }
    return {};
  }

  // What is neither trained nor rounded, and of one attention.
  Status latent() const {
    const bool trains = !attention_.gradients.empty() || attention_.reads_d_lse;
    const bool is_one = attention_.branches.empty() && attention_.branch.empty();
    const bool is_plain = !trains && is_one && !attention_.quantize && !attention_.prologue_k;
    if (attention_.values_of_keys) {
      const auto depth = attention_.dims.get(Dim::Dqk), width = attention_.dims.get(Dim::Dv);
      if (!is_plain) return bug("values of keys beside what they exclude");
      if (depth && width && *width > *depth) return bug("more values than columns of k");
      if (attention_.layouts.at("v") != attention_.layouts.at("k")) return bug("a layout of v");
    }
    if (!attention_.gather) return {};
    if (!is_plain || attention_.dropout || attention_.prologue_q)
      return bug("a gather beside what it excludes");
    const CapturedTensor* keys = attention_.find_tensor(attention_.gather->keys);
    if (keys == nullptr || keys->dtype != DType::i32 || keys->extents.size() != 3)
      return bug("keys of a gather that are not i32[B, Sq, N]");
    if (attention_.gather->counts.empty()) return {};
    const CapturedTensor* counts = attention_.find_tensor(attention_.gather->counts);
    if (counts == nullptr || counts->dtype != DType::i32 || counts->extents.size() != 2)
      return bug("counts of a gather that are not i32[B, Sq]");
    return {};
  }

  Status quantize() {
    if (!attention_.quantize) return {};
    if (!is_fp8(attention_.quantize->d_o)) return half("do", attention_.quantize->d_o);
    for (const char* name : {"o", "dq"}) {
      const DType dtype = attention_.dtype_of(name);
      if (!is_fp8(dtype)) ATTN_RETURN_IF_ERROR(half(name, dtype));
    }
    if (attention_.is_mxfp8()) return blocks();
    for (const Scale& scale : kScales) {
      const CapturedTensor* tensor = attention_.find_tensor(scale.name);
      if (!attention_.has(scale)) continue;
      if (tensor == nullptr || tensor->dtype != DType::f32 || tensor->extents.size() != 1) {
        return bug(fmt::format("{} is not f32[1]", scale.name));
      }
    }
    return {};
  }

  Status cache() {
    if (!attention_.cache) return {};
    const Cache& cache = *attention_.cache;
    if (!is_cache_type(cache.k) || !is_cache_type(cache.v)) return bug("types of a cache");
    if (attention_.quantize || attention_.prologue_k || !attention_.branches.empty() ||
        !attention_.gradients.empty())
      return bug("a cache beside 8-bit queries, a prologue of k, branches or gradients");
    const CacheScaleInfo& of = info(cache.by);
    const int rank = of.of_token ? 3 : std::max(of.of_batch + of.of_head, 1);
    for (const std::string_view name : {kKeyScale, kValueScale}) {
      const CapturedTensor* tensor = attention_.find_tensor(name);
      if (tensor == nullptr || tensor->dtype != DType::f32 ||
          tensor->extents.size() != static_cast<std::size_t>(rank))
        return bug(fmt::format("{} is not f32 of rank {}", name, rank));
    }
    return {};
  }

  // Scales of blocks are e8m0, and the backward's copies have the type of what they copy.
  Status blocks() {
    for (const char* name : {"o", "dq"}) {
      if (is_fp8(attention_.dtype_of(name))) return bug(fmt::format("8 bits of {}", name));
    }
    if (attention_.wants_amax_s) return bug("amax_s with mxfp8");
    const bool trains = !attention_.gradients.empty();
    for (const BlockScale& scale : kBlockScales) {
      if (scale.backward && !trains) continue;
      ATTN_RETURN_IF_ERROR(has_rank_4(scale.name, DType::e8m0));
    }
    for (const Copy& copy : kCopies) {
      if (!trains) break;
      ATTN_RETURN_IF_ERROR(
          has_rank_4(copy.name, attention_.dtype_of(copy.is_narrow ? copy.of : "o")));
    }
    return {};
  }

  Status has_rank_4(std::string_view name, DType dtype) const {
    const CapturedTensor* tensor = attention_.find_tensor(name);
    if (tensor != nullptr && tensor->dtype == dtype && tensor->extents.size() == 4) return {};
    return bug(fmt::format("{} is not {} of rank 4", name, to_string(dtype)));
  }

  Status gradients() {
    for (const std::string& name : attention_.gradients) {
      const CapturedTensor* tensor = attention_.find_tensor(name);
      if (name == "q" || name == "k" || name == "v" || (tensor && tensor->learned)) continue;
      return bug("gradient of " + name);
    }
    if (!attention_.reads_d_lse) return {};
    if (attention_.gradients.empty()) return bug("dlse without gradients");
    if (attention_.is_pointwise() || attention_.quantize)
      return bug("dlse without an lse of floats");
    return {};
  }
};

}  // namespace

Status verify(const Attention& attention) { return Verifier(attention).verify(); }

}  // namespace attn::ir
