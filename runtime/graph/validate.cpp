#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>

#include "runtime/graph/backend_graph.h"
#include "runtime/graph/extent.h"
#include "runtime/graph/operands.h"

namespace attn::graph {
namespace {

constexpr std::size_t kRank = 4;
constexpr std::size_t kHeads = 1;  // the axis
constexpr std::size_t kPlainRank = 3;
using Dims = std::vector<std::int64_t>;

std::string shape(const Tensor& tensor) {
  return fmt::format("%{} [{}]", tensor.uid, fmt::join(tensor.dims, ","));
}

// Each check returns an error text, or an empty string.

// Whether the graph is a single product [N,M,K] x [N,K,L].
bool is_plain_product(const BackendGraph& graph) {
  return graph.nodes.size() == 1 && std::holds_alternative<Matmul>(graph.nodes[0]) &&
         std::ranges::all_of(graph.tensors,
                             [](const Tensor& tensor) { return tensor.dims.size() == kPlainRank; });
}

std::string check_tensor(const Tensor& tensor, std::size_t rank) {
  if (tensor.dims.size() != rank || tensor.strides.size() != rank) {
    return fmt::format("has rank {} and {} strides, not {}", tensor.dims.size(),
                       tensor.strides.size(), rank);
  }
  if (std::ranges::any_of(tensor.dims, [](std::int64_t dim) { return dim < 1; })) {
    return "has a dimension below 1";
  }
  if (!last_offset(tensor.dims, tensor.strides) || !element_count(tensor.dims)) {
    return "has strides below 0 or is too large";
  }
  if (tensor.alignment < 1 || !std::has_single_bit(static_cast<std::uint64_t>(tensor.alignment))) {
    return fmt::format("has alignment {}, not a power of two", tensor.alignment);
  }
  if (tensor.storage == Storage::host_scalar && tensor.dims != Dims(kRank, 1)) {
    return "is a host scalar with more than one element";
  }
  return "";
}

// Two elements at the same address must not both be written.
std::string check_writable(const Tensor& tensor) {
  if (tensor.storage == Storage::host_scalar) return "writes a host scalar";
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] > 1 && tensor.strides[i] == 0) return "writes through a stride of 0";
  }
  return "";
}

Status tensor_error(const Tensor& tensor, std::string_view what) {
  Error error{ErrorCode::invalid_argument, fmt::format("tensor %{} {}", tensor.uid, what)};
  error.payload = fmt::format("{{\"uid\": {}}}", tensor.uid);
  return error;
}

std::string check_arity(const Node& node) {
  const auto* op = std::get_if<Pointwise>(&node);
  if (op == nullptr) return "";
  const int wanted = input_count(op->mode);
  if (op->b.has_value() != (wanted >= 2) || op->t.has_value() != (wanted >= 3)) {
    return fmt::format("takes {} input{}, x{}", wanted, wanted == 1 ? "" : "s",
                       wanted == 1   ? " alone"
                       : wanted == 2 ? " and b"
                                     : ", b and t");
  }
  const bool indexes = op->mode == PointwiseMode::gen_index;
  if (op->axis.has_value() != indexes) return indexes ? "has no axis" : "takes no axis";
  if (indexes && (*op->axis < 0 || *op->axis >= static_cast<std::int64_t>(kRank))) {
    return fmt::format("has axis {}, not 0 to 3", *op->axis);
  }
  return "";
}

bool is_lengths(const Tensor& tensor, std::int64_t batches) {
  return tensor.storage == Storage::device && tensor.dtype == DType::i32 &&
         tensor.dims == Dims{batches, 1, 1, 1};
}

bool is_one_i64(const Tensor& tensor) {
  return tensor.storage == Storage::device && tensor.dims == Dims(kRank, 1) &&
         tensor.dtype == DType::i64;
}

class DefinedTensors {
 protected:
  const Tensor& at(Uid uid) const { return *tensors_.at(uid); }

  bool is_scalar(Uid uid, DType dtype) const {
    return at(uid).storage == Storage::host_scalar && at(uid).dtype == dtype;
  }

  // `q` and `kv` are both present or both absent, and are lengths of `batches` batches.
  std::string check_lengths(const std::optional<Uid>& q, const std::optional<Uid>& kv,
                            std::int64_t batches) const {
    if (q.has_value() != kv.has_value()) return "has only one of the two lengths";
    for (const std::optional<Uid>& side : {q, kv}) {
      if (side && !is_lengths(at(*side), batches)) {
        return fmt::format("{} are not lengths of {} batches", shape(at(*side)), batches);
      }
    }
    return "";
  }

  std::map<Uid, const Tensor*> tensors_;
};

// Checks the dims of attention as one node, and of what modifies its score.
class AttentionShapes : public DefinedTensors {
 protected:
  std::string check_shape(const BandMask& op) const {
    const Tensor& x = at(op.x);
    const Tensor& y = at(op.y);
    if (x.dims != y.dims) return fmt::format("{} does not become {}", shape(x), shape(y));
    if (!is_scalar(op.fill, DType::f32)) return fmt::format("%{} is not an f32 scalar", op.fill);
    if (op.bound && !is_scalar(*op.bound, DType::i32)) {
      return fmt::format("%{} is not an i32 scalar", *op.bound);
    }
    if (op.side == BandSide::left && !op.bound) return "has no bound";
    return check_lengths(op.lengths_q, op.lengths_kv, y.dims[0]);
  }

  std::string check_shape(const SdpaForward& op) const {
    for (auto check : {&AttentionShapes::check_products, &AttentionShapes::check_pages,
                       &AttentionShapes::check_statistics, &AttentionShapes::check_dropout}) {
      if (std::string what = (this->*check)(op); !what.empty()) return what;
    }
    return check_lengths(op.lengths_q, op.lengths_kv, at(op.q).dims[0]);
  }

 private:
  // Rows of k or v; for a page pool, as many as its table has pages for. 0 if the count overflows.
  std::int64_t rows_of(Uid uid, const std::optional<Uid>& table) const {
    const std::int64_t pages = table ? at(*table).dims[2] : 1;
    return element_count(std::array{at(uid).dims[2], pages}).value_or(0);
  }

  std::string check_products(const SdpaForward& op) const {
    const Tensor& q = at(op.q);
    const Tensor& k = at(op.k);
    const Tensor& v = at(op.v);
    const Tensor& o = at(op.o);
    const bool batches =
        (op.table_k || k.dims[0] == q.dims[0]) && (op.table_v || v.dims[0] == q.dims[0]);
    const bool heads = k.dims[1] == v.dims[1] && q.dims[1] % k.dims[1] == 0;
    const bool rows = op.table_k || op.table_v || k.dims[2] == v.dims[2];
    const Dims wanted = {q.dims[0], q.dims[1], q.dims[2], v.dims[3]};
    if (batches && heads && rows && q.dims[3] == k.dims[3] && o.dims == wanted) return "";
    return fmt::format("{}, {} and {} do not give {}", shape(q), shape(k), shape(v), shape(o));
  }

  std::string check_pages(const SdpaForward& op) const {
    for (const std::optional<Uid>& table : {op.table_k, op.table_v}) {
      if (!table) continue;
      const Tensor& pages = at(*table);
      if (pages.dtype != DType::i32 || pages.storage != Storage::device ||
          pages.dims != Dims{at(op.q).dims[0], 1, pages.dims[2], 1}) {
        return fmt::format("{} is not a page table", shape(pages));
      }
      if (!op.lengths_kv) return "reads pages without lengths";
    }
    return "";
  }

  // Checks tensors with one value per row, per head or per score.
  std::string check_statistics(const SdpaForward& op) const {
    const Dims& q = at(op.q).dims;
    const auto is_f32 = [this](Uid uid, const Dims& dims) {
      return at(uid).dtype == DType::f32 && at(uid).dims == dims;
    };
    if (op.stats && !is_f32(*op.stats, {q[0], q[1], q[2], 1})) {
      return fmt::format("{} does not have one value per row", shape(at(*op.stats)));
    }
    if (op.sink && !is_f32(*op.sink, {1, q[1], 1, 1})) {
      return fmt::format("{} does not have one sink per head", shape(at(*op.sink)));
    }
    if (op.scale && !is_f32(*op.scale, Dims(kRank, 1))) {
      return fmt::format("{} is not a scale", shape(at(*op.scale)));
    }
    const Dims scores = {q[0], q[1], q[2], rows_of(op.k, op.table_k)};
    for (const std::optional<Uid>& score : {op.score, op.modified}) {
      if (!score) continue;
      const bool is_score =
          is_f32(*score, at(*op.score).dims) && at(*score).storage == Storage::virtual_value;
      const bool fits = at(*score).dims[3] <= scores[3] &&
                        std::equal(scores.begin(), scores.begin() + 3, at(*score).dims.begin());
      if (!is_score || !fits) return fmt::format("{} is not a score", shape(at(*score)));
    }
    return "";
  }

  std::string check_dropout(const SdpaForward& op) const {
    if (!(op.dropout >= 0 && op.dropout < 1)) {
      return fmt::format("has dropout probability {}", op.dropout);
    }
    for (const std::optional<Uid>& uid : {op.seed, op.offset}) {
      if (uid.has_value() != (op.dropout > 0))
        return "has a seed without dropout, or dropout without a seed";
      if (uid && !is_one_i64(at(*uid))) return fmt::format("%{} is not a single i64", *uid);
    }
    return "";
  }
};

// Checks the dims of the other nodes.
class NodeShapes : public AttentionShapes {
 protected:
  using AttentionShapes::check_shape;

  std::string check_shape(const Matmul& op) const {
    const Tensor& a = at(op.a);
    const Tensor& b = at(op.b);
    const Tensor& c = at(op.c);
    if (a.dims.size() == kPlainRank) return check_plain(op);
    const bool batches = a.dims[0] == b.dims[0] || a.dims[0] == 1 || b.dims[0] == 1;
    const bool heads = a.dims[1] % b.dims[1] == 0;
    const Dims wanted = {std::max(a.dims[0], b.dims[0]), a.dims[1], a.dims[2], b.dims[3]};
    if (!batches || !heads || a.dims[3] != b.dims[2] || c.dims != wanted) {
      return fmt::format("{} x {} does not give {}", shape(a), shape(b), shape(c));
    }
    for (const std::optional<Uid>& size : {op.m, op.n, op.k}) {
      if (size && !is_lengths(at(*size), c.dims[0])) {
        return fmt::format("{} are not i32 sizes of {} batches", shape(at(*size)), c.dims[0]);
      }
    }
    return "";
  }

  std::string check_shape(const Rng& op) const {
    if (!(op.keep > 0 && op.keep <= 1)) return fmt::format("has keep probability {}", op.keep);
    for (const Uid uid : {op.seed, op.offset}) {
      if (!is_one_i64(at(uid))) return fmt::format("%{} is not a single i64", uid);
    }
    return "";
  }

  std::string check_shape(const PagedLoad& op) const {
    const Tensor& container = at(op.container);
    const Tensor& table = at(op.table);
    const Tensor& y = at(op.y);
    const bool transposed = y.strides[2] == 1;
    const std::int64_t rows = y.dims[transposed ? 3 : 2], depth = y.dims[transposed ? 2 : 3];
    const std::int64_t page = container.dims[2];
    if (container.dims[1] != y.dims[1] || container.dims[3] != depth) {
      return fmt::format("{} does not have the heads and depth of {}", shape(container), shape(y));
    }
    if (table.dtype != DType::i32 ||
        table.dims != Dims{y.dims[0], 1, (rows + page - 1) / page, 1}) {
      return fmt::format("{} is not a page table for {}", shape(table), shape(y));
    }
    if (!is_lengths(at(op.lengths), y.dims[0])) {
      return fmt::format("{} are not lengths of {} batches", shape(at(op.lengths)), y.dims[0]);
    }
    return "";
  }

  std::string check_shape(const Pointwise& op) const {
    const Tensor& y = at(op.y);
    Dims wanted(kRank, 1);
    for (const Uid uid : inputs_of(op)) {
      const Tensor& input = at(uid);
      for (std::size_t i = 0; i < kRank; ++i) {
        if (input.dims[i] != 1 && input.dims[i] != y.dims[i]) {
          return fmt::format("{} does not broadcast to {}", shape(input), shape(y));
        }
        wanted[i] = std::max(wanted[i], input.dims[i]);
      }
    }
    if (wanted != y.dims) {
      return fmt::format("{} is larger than the broadcast inputs: [{}]", shape(y),
                         fmt::join(wanted, ","));
    }
    return check_booleans(op);
  }

  std::string check_shape(const Reshape& op) const {
    const auto sorted = [this](Uid uid) {
      Dims dims = at(uid).dims;
      std::ranges::sort(dims);
      return dims;
    };
    const bool reach = last_offset(at(op.x).dims, at(op.x).strides) ==
                       last_offset(at(op.y).dims, at(op.y).strides);
    if (sorted(op.x) == sorted(op.y) && reach) return "";
    return fmt::format("{} does not become {}", shape(at(op.x)), shape(at(op.y)));
  }

  // Along the axis of the blocks, scales are fewer than elements; along the other, as many or more.
  std::string check_shape(const BlockDequantize& op) const {
    const Tensor& x = at(op.x);
    const Tensor& scale = at(op.scale);
    if (op.size < 1) return fmt::format("has blocks of {}", op.size);
    if (x.dims != at(op.y).dims) {
      return fmt::format("{} does not become {}", shape(x), shape(at(op.y)));
    }
    if (!is_fp8(x.dtype)) return fmt::format("%{} is not of 8 bits", op.x);
    if (scale.dtype != DType::e8m0 || scale.reordering != Reordering::f8_128x4) {
      return fmt::format("%{} is not e8m0 in the order f8_128x4", op.scale);
    }
    const auto covers = [&](std::size_t blocks, std::size_t rows) {
      const std::int64_t wanted = (x.dims[blocks] + op.size - 1) / op.size;
      return scale.dims[blocks] >= wanted && scale.dims[rows] >= x.dims[rows];
    };
    const bool same = scale.dims[0] == x.dims[0] && scale.dims[1] == x.dims[1];
    if (same && (covers(2, 3) || covers(3, 2))) return "";
    return fmt::format("{} are not the scales of {}", shape(scale), shape(x));
  }

  std::string check_shape(const Reduction& op) const {
    const Tensor& x = at(op.x);
    const Tensor& y = at(op.y);
    for (std::size_t i = 0; i < kRank; ++i) {
      const bool groups = i == kHeads && x.dims[i] % y.dims[i] == 0;
      if (y.dims[i] != 1 && y.dims[i] != x.dims[i] && !groups) {
        return fmt::format("{} does not reduce to {}", shape(x), shape(y));
      }
    }
    return "";
  }

 private:
  std::string check_plain(const Matmul& op) const {
    const Tensor& a = at(op.a);
    const Tensor& b = at(op.b);
    const Tensor& c = at(op.c);
    if (op.m || op.n || op.k) return "has batch sizes but rank 3";
    const bool fits = a.dims[0] == b.dims[0] && a.dims[2] == b.dims[1];
    if (fits && c.dims == Dims{a.dims[0], a.dims[1], b.dims[2]}) return "";
    return fmt::format("{} x {} does not give {}", shape(a), shape(b), shape(c));
  }

  std::string check_booleans(const Pointwise& op) const {
    const bool logical = is_logical(op.mode);
    if ((logical || is_comparison(op.mode)) && at(op.y).dtype != DType::boolean) {
      return fmt::format("gives a boolean, but %{} is {}", op.y, to_string(at(op.y).dtype));
    }
    for (const Uid uid : logical ? inputs_of(op) : std::vector<Uid>()) {
      if (at(uid).dtype != DType::boolean)
        return fmt::format("needs boolean inputs, but %{} is not boolean", uid);
    }
    if (op.t && at(*op.t).dtype != DType::boolean) {
      return fmt::format("selects by %{}, which is not boolean", *op.t);
    }
    return "";
  }
};

// Checks what is defined, produced and used.
class Validator : public NodeShapes {
 public:
  explicit Validator(const BackendGraph& graph) : graph_(graph) {}

  Status run() {
    ATTN_RETURN_IF_ERROR(check_tensors());
    if (graph_.nodes.empty()) return {ErrorCode::invalid_argument, "the graph has no nodes"};
    if (const SdpaForward* sdpa = sdpa_of(graph_); sdpa != nullptr && sdpa->score) {
      produced_.insert(*sdpa->score);
    }
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) ATTN_RETURN_IF_ERROR(check_node(i));
    return check_uses();
  }

 private:
  Status node_error(std::size_t index, std::string_view what) const {
    Error error{ErrorCode::invalid_argument,
                fmt::format("node {} ({}): {}", index, mnemonic_of(graph_.nodes[index]), what)};
    error.payload = fmt::format("{{\"node\": {}}}", index);
    return error;
  }

  // Offsets of a ragged tensor count as used.
  std::string check_ragged(const Tensor& tensor) {
    if (!tensor.ragged) return "";
    const auto found = tensors_.find(*tensor.ragged);
    if (found == tensors_.end()) return "has undefined offsets";
    if (tensor.storage != Storage::device) return "has offsets but is not in device memory";
    const Tensor& offsets = *found->second;
    const bool integers = offsets.dtype == DType::i32 || offsets.dtype == DType::i64;
    if (offsets.storage != Storage::device || !integers ||
        offsets.dims != Dims{tensor.dims[0] + 1, 1, 1, 1}) {
      return fmt::format("has offsets {}, which are not batches + 1 integers", shape(offsets));
    }
    used_.insert(*tensor.ragged);
    return "";
  }

  Status check_tensors() {
    const std::size_t rank = is_plain_product(graph_) ? kPlainRank : kRank;
    const Tensor* previous = nullptr;
    for (const Tensor& tensor : graph_.tensors) {
      if (previous != nullptr && tensor.uid == previous->uid) {
        return tensor_error(tensor, "is defined twice");
      }
      if (previous != nullptr && tensor.uid < previous->uid) {
        return tensor_error(
            tensor,
            fmt::format("comes after %{}, so the tensors are not sorted by uid", previous->uid));
      }
      if (std::string what = check_tensor(tensor, rank); !what.empty()) {
        return tensor_error(tensor, what);
      }
      tensors_.emplace(tensor.uid, &tensor);
      previous = &tensor;
    }
    for (const Tensor& tensor : graph_.tensors) {
      if (std::string what = check_ragged(tensor); !what.empty()) return tensor_error(tensor, what);
    }
    return {};
  }

  Status check_node(std::size_t index) {
    const Node& node = graph_.nodes[index];
    const std::string arity = check_arity(node);
    if (!arity.empty()) return node_error(index, arity);
    for (const Uid uid : inputs_of(node)) {
      if (std::string what = check_input(uid); !what.empty()) return node_error(index, what);
    }
    for (const Uid uid : outputs_of(node)) {
      if (std::string what = check_output(uid); !what.empty()) return node_error(index, what);
    }
    if (std::string what = check_place(index); !what.empty()) return node_error(index, what);
    const std::string what = std::visit([this](const auto& op) { return check_shape(op); }, node);
    return what.empty() ? Status() : node_error(index, what);
  }

  // Which nodes a graph with an SdpaForward may have.
  std::string check_place(std::size_t index) const {
    const Node& node = graph_.nodes[index];
    const SdpaForward* sdpa = sdpa_of(graph_);
    if (std::holds_alternative<SdpaForward>(node)) {
      if (index + 1 != graph_.nodes.size()) return "is not the last node";
      if (sdpa->score.has_value() != (index > 0))
        return "has a score without nodes before it, or nodes without a score";
      return sdpa->score.has_value() == sdpa->modified.has_value() ? "" : "has no modified score";
    }
    const bool of_score =
        std::holds_alternative<Pointwise>(node) || std::holds_alternative<BandMask>(node);
    if (sdpa != nullptr && !of_score) return "does not modify the score of the attention after it";
    if (sdpa == nullptr && std::holds_alternative<BandMask>(node)) {
      return "needs attention as one node in the graph";
    }
    return "";
  }

  std::string check_input(Uid uid) {
    const auto found = tensors_.find(uid);
    if (found == tensors_.end()) return fmt::format("reads %{}, which is not defined", uid);
    if (found->second->storage == Storage::virtual_value && !produced_.contains(uid)) {
      return fmt::format("reads %{} before a node has produced it", uid);
    }
    used_.insert(uid);
    return "";
  }

  std::string check_output(Uid uid) {
    const auto found = tensors_.find(uid);
    if (found == tensors_.end()) return fmt::format("writes %{}, which is not defined", uid);
    if (produced_.contains(uid)) return fmt::format("writes %{} a second time", uid);
    if (used_.contains(uid)) return fmt::format("writes %{} after it was read", uid);
    if (std::string what = check_writable(*found->second); !what.empty()) return what;
    produced_.insert(uid);
    used_.insert(uid);
    return "";
  }

  Status check_uses() const {
    for (const Tensor& tensor : graph_.tensors) {
      if (!used_.contains(tensor.uid)) return tensor_error(tensor, "is not used by any node");
    }
    return {};
  }

  const BackendGraph& graph_;
  std::set<Uid> produced_;
  std::set<Uid> used_;
};

}  // namespace

Status validate(const BackendGraph& graph) { return Validator(graph).run(); }

}  // namespace attn::graph
