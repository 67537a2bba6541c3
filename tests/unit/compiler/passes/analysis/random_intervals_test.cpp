// The intervals of random masks agree with evaluating the masks score by score.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "compiler/passes/analysis/intervals.h"
#include "compiler/passes/rewrite/simplify.h"
#include "compiler/reference/row_evaluator.h"
#include "tests/unit/compiler/passes/analysis/random_mask.h"
#include "tests/unit/compiler/passes/example.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Op;
using reference::RowEvaluator;

constexpr int kMasks = 10000;  // of each kind

// Conditions with the column on one side, as users write them.
class TidyMask {
 public:
  TidyMask(ir::Dag& dag, std::mt19937_64& random, std::vector<ExprId> moving,
           std::vector<ExprId> rising, std::vector<ExprId> still)
      : dag_(dag),
        random_(random),
        moving_(std::move(moving)),
        rising_(std::move(rising)),
        still_(std::move(still)) {}

  ExprId boolean(int depth) {
    if (depth > 0) {
      switch (pick(6)) {
        case 0:
        case 1: return dag_.add(Op::and_, {boolean(depth - 1), boolean(depth - 1)});
        case 2:
        case 3: return dag_.add(Op::or_, {boolean(depth - 1), boolean(depth - 1)});
        case 4: return dag_.add(Op::select_, {boolean(0), boolean(depth - 1), boolean(depth - 1)});
        default: break;
      }
    }
    constexpr Op kComparisons[] = {Op::lt_, Op::le_, Op::gt_, Op::ge_, Op::eq_, Op::ne_};
    const Op op = kComparisons[pick(6)];
    if (pick(5) == 0) return dag_.add(op, {still(), still()});
    if (pick(5) == 0) return dag_.add(op, {one_of(rising_), still()});
    return dag_.add(op, {changed(changed(one_of(moving_))), still()});
  }

 private:
  std::uint64_t pick(std::uint64_t count) { return random_() % count; }
  ExprId one_of(const std::vector<ExprId>& ids) { return ids[pick(ids.size())]; }
  ExprId constant(std::int64_t low, std::int64_t high) {
    return dag_.integer(
        low + static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(high - low + 1))));
  }
  ExprId still() { return changed(pick(4) == 0 ? constant(-9, 40) : one_of(still_)); }

  ExprId changed(ExprId id) {
    switch (pick(12)) {
      case 0: return dag_.add(Op::floordiv_, {id, constant(1, 9)});
      case 1: return dag_.add(Op::mul_, {id, constant(-3, 3)});
      case 2: return dag_.add(Op::add_, {id, constant(-9, 9)});
      case 3: return dag_.add(Op::sub_, {constant(-9, 40), id});
      case 4: return dag_.add(Op::min_, {id, constant(-9, 40)});
      case 5: return dag_.add(Op::max_, {id, constant(-9, 40)});
      case 6: return dag_.add(Op::abs_, {id});
      case 7: return dag_.add(Op::sub_, {id, dag_.leaf(Op::row_)});
      default: return id;
    }
  }

  ir::Dag& dag_;
  std::mt19937_64& random_;
  std::vector<ExprId> moving_;
  std::vector<ExprId> rising_;
  std::vector<ExprId> still_;
};

enum class Kind { wild, tidy };

// A mask, and the values of the tensors.
class Case {
 public:
  Case(std::mt19937_64& random, Kind kind) : random_(random) {
    attention_ = testing::example(size(), size());
    attention_.dims.set(ir::Dim::Hq, 1);
    attention_.dims.set(ir::Dim::Hkv, 1);
    const std::int64_t rows = attention_.dims[ir::Dim::Sq];
    const std::int64_t columns = attention_.dims[ir::Dim::Skv];
    const ExprId batch = dag().leaf(Op::batch_), row = dag().leaf(Op::row_);
    const ExprId column = dag().leaf(Op::column_);
    add("doc", DType::i32, {2, columns}, true);
    add("ids", DType::i32, {2, columns}, false);
    add("n", DType::i32, {2}, false);
    add("of_row", DType::i32, {rows}, false);
    add("flag", DType::boolean, {columns}, false);
    add("late", DType::boolean, {columns}, true);
    attention_.params.push_back({"p", DType::i32, {}});
    bindings_.params["p"] = number();
    const ExprId doc = load("doc", {batch, column}), n = load("n", {batch});
    const ExprId p = dag().add_symbol(Op::param_, "p", ir::Type::integer);
    const ExprId own = dag().add(Op::min_, {row, dag().integer(columns - 1)});
    const ExprId own_doc = load("doc", {batch, own}), of_row = load("of_row", {row});
    if (kind == Kind::tidy) {
      TidyMask mask(dag(), random, {column, column, column, dag().add(Op::sub_, {row, column})},
                    {doc}, {row, row, row, batch, n, p, own_doc, of_row});
      attention_.masks = {mask.boolean(2), mask.boolean(1)};
    } else {
      testing::RandomMask mask(
          attention_, random,
          {batch, doc, doc, own_doc, load("ids", {batch, column}), n, n, of_row, p},
          {load("flag", {column}), load("late", {column})});
      attention_.masks = {mask.boolean(2), mask.boolean(1)};
    }
    attention_ = simplify(attention_);
  }

  const ir::Attention& attention() const { return attention_; }
  const reference::Bindings& bindings() const { return bindings_; }

 private:
  ir::Dag& dag() { return attention_.dag; }
  std::int64_t size() { return static_cast<std::int64_t>(random_() % 40 + 1); }
  int number() {
    if (random_() % 16 == 0) return random_() % 2 == 0 ? INT32_MIN : INT32_MAX;
    return static_cast<int>(random_() % 41) - 10;
  }

  void add(const std::string& name, DType dtype, std::vector<std::int64_t> dims, bool monotone) {
    ir::CapturedTensor tensor{name, dtype, {}, {}};
    for (const std::int64_t extent : dims) tensor.extents.push_back(dag().integer(extent));
    tensor.monotone = monotone;
    attention_.tensors.push_back(std::move(tensor));
    bindings_.tensors[name] = values(dtype, std::move(dims), monotone);
  }

  io::HostTensor values(DType dtype, std::vector<std::int64_t> dims, bool monotone) {
    io::HostTensor tensor{dtype, std::move(dims), {}};
    const auto last = static_cast<std::ptrdiff_t>(tensor.dims.back());
    tensor.values.resize(static_cast<std::size_t>(io::element_count(tensor.dims)));
    for (double& value : tensor.values) {
      value = dtype == DType::boolean ? random_() % 2 == 0 ? 0 : 1 : number();
    }
    for (auto row = tensor.values.begin(); monotone && row != tensor.values.end(); row += last) {
      std::sort(row, row + last);
    }
    return tensor;
  }

  ExprId load(const std::string& name, std::vector<ExprId> indices) {
    const ir::Type type = ir::value_type(attention_.find_tensor(name)->dtype);
    return dag().add_symbol(Op::load_, name, type, indices);
  }

  std::mt19937_64& random_;
  ir::Attention attention_;
  reference::Bindings bindings_;
};

std::vector<ExprId> roots_of(const VisibleColumns& columns) {
  std::vector<ExprId> roots = columns.attention.masks;
  for (const Interval& interval : columns.intervals) {
    for (const Edge& edge : {interval.low, interval.high}) {
      roots.push_back(edge.value);
      roots.insert(roots.end(), edge.firsts.begin(), edge.firsts.end());
    }
    if (interval.condition) roots.push_back(*interval.condition);
  }
  return roots;
}

double value_of(const RowEvaluator& evaluator, ExprId id, std::size_t column = 0) {
  const reference::Cell& cell = evaluator.cells(id)[column];
  EXPECT_FALSE(cell.fault.has_value());
  return cell.value;
}

double first(const RowEvaluator& evaluator, ExprId condition) {
  const std::vector<reference::Cell>& cells = evaluator.cells(condition);
  const auto holds = [](const reference::Cell& cell) { return cell.value != 0; };
  EXPECT_TRUE(std::ranges::is_partitioned(cells, std::not_fn(holds)));
  return static_cast<double>(std::ranges::find_if(cells, holds) - cells.begin());
}

struct Seen {
  bool at_all = false;
  bool for_sure = false;
};

void see(const RowEvaluator& evaluator, const Interval& interval, std::vector<Seen>& seen) {
  if (interval.condition && value_of(evaluator, *interval.condition) == 0) return;
  double low = value_of(evaluator, interval.low.value);
  double high = value_of(evaluator, interval.high.value);
  for (const ExprId id : interval.low.firsts) low = std::max(low, first(evaluator, id));
  for (const ExprId id : interval.high.firsts) high = std::min(high, first(evaluator, id));
  if (low >= high) return;
  ASSERT_GE(low, 0);
  ASSERT_LE(high, static_cast<double>(seen.size()));
  for (auto column = static_cast<std::size_t>(low); column < static_cast<std::size_t>(high);
       ++column) {
    seen[column].at_all = true;
    seen[column].for_sure |= interval.exact;
  }
}

void expect_same(const VisibleColumns& columns, const RowEvaluator& evaluator) {
  const ir::Attention& attention = columns.attention;
  std::vector<Seen> seen(static_cast<std::size_t>(attention.dims[ir::Dim::Skv]));
  for (const Interval& interval : columns.intervals) see(evaluator, interval, seen);
  for (std::size_t column = 0; column < seen.size(); ++column) {
    const bool visible = std::ranges::all_of(
        attention.masks, [&](ExprId mask) { return value_of(evaluator, mask, column) != 0; });
    ASSERT_TRUE(!visible || seen[column].at_all) << "column " << column;
    ASSERT_TRUE(visible || !seen[column].for_sure) << "column " << column;
  }
}

std::string text_of(const VisibleColumns& columns) {
  std::string text;
  for (const ExprId mask : columns.attention.masks) {
    text += ir::to_source(columns.attention, mask) + "\n";
  }
  for (const Interval& interval : columns.intervals) {
    text += (interval.exact ? "  " : "  in ") + to_source(columns, interval) + "\n";
  }
  return text;
}

// The number of masks with exact intervals. Values include both ends of 32 bits.
int count_exact(std::uint64_t seed, Kind kind) {
  std::mt19937_64 random(seed);
  int exact = 0;
  for (int i = 0; i < kMasks; ++i) {
    const Case test(random, kind);
    const VisibleColumns columns = visible_columns(test.attention());
    EXPECT_TRUE(ir::verify(columns.attention).ok());
    exact += columns.exactness == Exactness::exact ? 1 : 0;
    const std::vector<ExprId> roots = roots_of(columns);
    RowEvaluator evaluator(columns.attention, test.bindings(), roots);
    const std::vector<double> scores(static_cast<std::size_t>(test.attention().dims[ir::Dim::Skv]));
    for (std::int64_t row = 0; row < test.attention().dims[ir::Dim::Sq]; ++row) {
      const std::int64_t batch = (row + i) % 2;
      evaluator.run({batch, 0, row}, scores);
      expect_same(columns, evaluator);
      if (!::testing::Test::HasFailure()) continue;
      ADD_FAILURE() << "mask " << i << ", batch " << batch << ", row " << row << "\n"
                    << text_of(columns);
      return exact;
    }
  }
  return exact;
}

TEST(Intervals, OfRandomMasksAreWhatTheyShow) {
  EXPECT_GT(count_exact(5, Kind::wild), kMasks / 5);  // 23 %: most have unordered ids, or wrap
}

TEST(Intervals, OfTidyMasksAreExact) {
  EXPECT_GT(count_exact(6, Kind::tidy),
            kMasks * 99 / 100);  // 99.96 %: others have too many intervals
}

}  // namespace
}  // namespace attn::passes
