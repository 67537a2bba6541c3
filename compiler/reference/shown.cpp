#include "compiler/reference/shown.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <set>

#include "compiler/reference/bindings.h"
#include "compiler/reference/gathered.h"
#include "compiler/reference/row_evaluator.h"
#include "compiler/reference/tasks.h"

namespace attn::reference {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

// Whether the masks depend on the batch or head, directly or through what they read.
struct Varying {
  bool batch = false;
  bool head = false;
};

Varying varying(const ir::Attention& attention) {
  Varying varying{attention.lengths_q || attention.lengths_kv || attention.gather, false};
  for (const ExprId id : ir::reachable(attention.dag, attention.masks)) {
    varying.batch |= attention.dag[id].is(Op::batch_);
    varying.head |= attention.dag[id].is(Op::head_);
  }
  return varying;
}

Result<std::vector<std::int64_t>> bound_dims_of(const ir::Attention& attention,
                                                const ir::CapturedTensor& tensor) {
  std::vector<std::int64_t> dims;
  for (const ExprId extent : tensor.extents) {
    const auto size = ir::fold_integer(attention.dag, extent, attention.dims);
    if (!size) return {ErrorCode::binding, fmt::format("{} has an open extent", tensor.name)};
    dims.push_back(*size);
  }
  return dims;
}

Result<Bindings> bind_those(const ir::Attention& attention, const Inputs& inputs) {
  Bindings bindings;
  for (const std::string& name : tensors_that_hide(attention)) {
    const auto given = inputs.tensors.find(name);
    ATTN_ASSIGN(const auto dims, bound_dims_of(attention, *attention.find_tensor(name)));
    if (given == inputs.tensors.end() || given->second.dims != dims) {
      return {ErrorCode::binding, fmt::format("{} is missing or has wrong dims", name)};
    }
    bindings.tensors[name] = given->second;
  }
  for (const ir::Param& param : attention.params) {
    const auto given = inputs.params.find(param.name);
    if (given == inputs.params.end()) {
      return {ErrorCode::binding, fmt::format("the param {} is missing", param.name)};
    }
    bindings.params[param.name] = given->second;
  }
  return bindings;
}

// Counts the visible scores of one row.
class RowCounter {
 public:
  RowCounter(const ir::Attention& attention, const Bindings& bindings)
      : attention_(attention),
        bindings_(bindings),
        evaluator_(attention, bindings, attention.masks),
        scores_(static_cast<std::size_t>(attention.dims[Dim::Skv])) {}

  Result<std::int64_t> count(RowPlace place) {
    if (attention_.gather) return count_listed(place);
    if (place.row >= length(ir::kLengthsQ, Dim::Sq, place.batch)) return 0;
    const auto columns = static_cast<std::size_t>(length(ir::kLengthsKv, Dim::Skv, place.batch));
    if (attention_.masks.empty()) return static_cast<std::int64_t>(columns);
    evaluator_.run(place, scores_);
    std::int64_t shown = 0;
    for (std::size_t column = 0; column < columns; ++column) {
      ATTN_ASSIGN(const bool visible, is_shown(column));
      shown += visible ? 1 : 0;
    }
    return shown;
  }

 private:
  Result<std::int64_t> count_listed(RowPlace place) {
    const std::vector<std::int64_t> keys =
        listed_keys(attention_, bindings_, place.batch, place.row);
    if (keys.empty() || place.row >= length(ir::kLengthsQ, Dim::Sq, place.batch)) return 0;
    place.keys = keys;
    scores_.resize(keys.size());
    evaluator_.run(place, scores_);
    const std::int64_t most = length(ir::kLengthsKv, Dim::Skv, place.batch);
    std::int64_t shown = 0;
    for (std::size_t column = 0; column < keys.size(); ++column) {
      if (keys[column] < 0 || keys[column] >= most) continue;
      ATTN_ASSIGN(const bool visible, is_shown(column));
      shown += visible ? 1 : 0;
    }
    return shown;
  }

  std::int64_t length(std::string_view name, Dim dim, std::int64_t batch) const {
    const auto found = bindings_.tensors.find(name);
    if (found == bindings_.tensors.end()) return attention_.dims[dim];
    const auto value =
        static_cast<std::int64_t>(found->second.values[static_cast<std::size_t>(batch)]);
    return std::clamp<std::int64_t>(value, 0, attention_.dims[dim]);
  }

  // A mask without a value is not an error if another mask hides the score.
  Result<bool> is_shown(std::size_t column) const {
    std::optional<ExprId> fault;
    for (const ExprId mask : attention_.masks) {
      const Cell& cell = evaluator_.cells(mask)[column];
      if (!cell.fault && cell.value == 0) return false;
      if (!fault) fault = cell.fault;
    }
    if (fault) return evaluator_.describe(*fault, column);
    return true;
  }

  const ir::Attention& attention_;
  const Bindings& bindings_;
  RowEvaluator evaluator_;
  std::vector<double> scores_;
};

}  // namespace

std::vector<std::string> tensors_that_hide(const ir::Attention& attention) {
  std::set<std::string> names;
  for (const ExprId id : ir::reachable(attention.dag, attention.masks)) {
    if (attention.dag[id].is(Op::load_)) names.insert(attention.dag.symbol_of(id));
  }
  if (const auto& gather = attention.gather) {
    names.insert(gather->keys);
    if (!gather->counts.empty()) names.insert(gather->counts);
  }
  if (attention.lengths_q) names.insert(std::string(ir::kLengthsQ));
  if (attention.lengths_kv) names.insert(std::string(ir::kLengthsKv));
  return {names.begin(), names.end()};
}

Result<Shown> shown_scores(const ir::Attention& attention, const Inputs& inputs, double most) {
  ATTN_ASSIGN(const Bindings bindings, bind_those(attention, inputs));
  const ir::Dims& d = attention.dims;
  const Varying by = varying(attention);
  const std::int64_t batches = by.batch ? d[Dim::B] : 1, heads = by.head ? d[Dim::Hq] : 1;
  const std::size_t nodes = ir::reachable(attention.dag, attention.masks).size() + 1;
  const double work = static_cast<double>(batches * heads) * static_cast<double>(d[Dim::Sq]) *
                      static_cast<double>(attention.keys_of_row()) * static_cast<double>(nodes);
  const auto every =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(work / most)), 1, d[Dim::Sq]);
  const std::int64_t rows = (d[Dim::Sq] + every - 1) / every;
  std::atomic<std::int64_t> shown = 0;
  const auto make_worker = [&]() -> Worker {
    return [&, counter =
                   std::make_shared<RowCounter>(attention, bindings)](std::int64_t task) -> Status {
      const std::int64_t row = std::min(task % rows * every + every / 2, d[Dim::Sq] - 1);
      ATTN_ASSIGN(const std::int64_t count,
                  counter->count({task / rows / heads, task / rows % heads, row}));
      shown += count;
      return {};
    };
  };
  ATTN_RETURN_IF_ERROR(run_tasks(batches * heads * rows, 0, make_worker));
  const double share = static_cast<double>(shown) / static_cast<double>(batches * heads * rows);
  return Shown{
      share * static_cast<double>(d[Dim::B] * d[Dim::Hq]) * static_cast<double>(d[Dim::Sq]), every};
}

}  // namespace attn::reference
