#include "tests/host/graph.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "runtime/io/element.h"

namespace attn::host {
namespace {

using graph::PointwiseMode;
using graph::Uid;
using Dims = std::array<std::int64_t, 4>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Pads dims to rank 4: [N, m, k], which a single product has, becomes [1, N, m, k].
Dims four(const std::vector<std::int64_t>& axes, std::int64_t first) {
  Dims all{first, first, first, first};
  std::ranges::copy(axes, all.end() - static_cast<std::ptrdiff_t>(axes.size()));
  return all;
}
Dims dims_of(const graph::Tensor& tensor) { return four(tensor.dims, 1); }
Dims strides_of(const graph::Tensor& tensor) { return four(tensor.strides, 0); }

std::int64_t count_of(const Dims& dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }

std::int64_t place_of(const Dims& index, const Dims& strides) {
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) place += index[axis] * strides[axis];
  return place;
}

std::int64_t last_place(const Dims& dims, const Dims& strides) {
  return place_of({dims[0] - 1, dims[1] - 1, dims[2] - 1, dims[3] - 1}, strides);
}

template <typename Visit>
void for_each_index(const Dims& dims, const Visit& visit) {
  Dims i{};
  for (i[0] = 0; i[0] < dims[0]; ++i[0]) {
    for (i[1] = 0; i[1] < dims[1]; ++i[1]) {
      for (i[2] = 0; i[2] < dims[2]; ++i[2]) {
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) visit(i);
      }
    }
  }
}

// Visits the index of the first element of each row.
template <typename Visit>
void for_each_row(const Dims& dims, const Visit& visit) {
  if (dims[3] > 0) for_each_index({dims[0], dims[1], dims[2], 1}, visit);
}

// A row-major tensor.
struct Dense {
  Dims dims{};
  std::vector<double> values;

  explicit Dense(const Dims& of = {}, double value = 0)
      : dims(of), values(static_cast<std::size_t>(count_of(of)), value) {}
  Dims strides() const { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }
  // Strides for reading it broadcast to a larger shape.
  Dims broadcast() const {
    Dims all = strides();
    for (std::size_t axis = 0; axis < 4; ++axis) all[axis] *= dims[axis] == 1 ? 0 : 1;
    return all;
  }
  double& operator[](std::int64_t place) { return values[static_cast<std::size_t>(place)]; }
  double operator[](std::int64_t place) const { return values[static_cast<std::size_t>(place)]; }
};

// Elements of a row of a tensor that is broadcast.
struct RowOf {
  const double* first;
  std::int64_t stride;

  RowOf(const Dense& tensor, const Dims& index, const Dims& strides)
      : first(tensor.values.data() + place_of(index, strides)), stride(strides[3]) {}
  double operator[](std::int64_t column) const { return first[column * stride]; }
};

// Computes each element of y, in row-major order, of those of x and b.
template <typename Operation>
void apply(const Operation& operation, const Dense& x, const Dense& b, Dense& y) {
  const Dims of_x = x.broadcast(), of_b = b.broadcast();
  double* to = y.values.data();
  for_each_row(y.dims, [&](const Dims& index) {
    const RowOf left(x, index, of_x), right(b, index, of_b);
    for (std::int64_t i = 0; i < y.dims[3]; ++i) *to++ = operation(left[i], right[i]);
  });
}

using Real = double (*)(double x, double b);
using Integer = std::int64_t (*)(std::int64_t x, std::int64_t b);

double smaller(double x, double b) { return x != x || x < b ? x : b; }
double larger(double x, double b) { return x != x || x > b ? x : b; }

// Rules for rows without a visible score (graph.h).
double centred(double x, double max) { return max == -kInfinity ? x : x - max; }
double share(double x, double sum) { return sum == 0 ? 0 : x / sum; }

// Rounded like in a kernel; floors of quotients depend on it (lowering/whole_quotient.h).
double sum(double x, double b) { return static_cast<float>(x + b); }

Real real_operation(PointwiseMode mode) {
  switch (mode) {
    case PointwiseMode::add: return sum;
    case PointwiseMode::sub: return [](double x, double b) { return x - b; };
    case PointwiseMode::mul: return [](double x, double b) { return x * b; };
    case PointwiseMode::div: return [](double x, double b) { return x / b; };
    case PointwiseMode::mod: return [](double x, double b) { return std::fmod(x, b); };
    case PointwiseMode::pow: return [](double x, double b) { return std::pow(x, b); };
    case PointwiseMode::min: return smaller;
    case PointwiseMode::max: return larger;
    case PointwiseMode::abs: return [](double x, double) { return std::abs(x); };
    case PointwiseMode::neg: return [](double x, double) { return -x; };
    case PointwiseMode::floor: return [](double x, double) { return std::floor(x); };
    case PointwiseMode::ceil: return [](double x, double) { return std::ceil(x); };
    case PointwiseMode::exp: return [](double x, double) { return std::exp(x); };
    case PointwiseMode::log: return [](double x, double) { return std::log(x); };
    case PointwiseMode::sqrt: return [](double x, double) { return std::sqrt(x); };
    case PointwiseMode::rsqrt: return [](double x, double) { return 1 / std::sqrt(x); };
    case PointwiseMode::tanh: return [](double x, double) { return std::tanh(x); };
    case PointwiseMode::sigmoid: return [](double x, double) { return 1 / (1 + std::exp(-x)); };
    case PointwiseMode::erf: return [](double x, double) { return std::erf(x); };
    case PointwiseMode::sin: return [](double x, double) { return std::sin(x); };
    case PointwiseMode::cos: return [](double x, double) { return std::cos(x); };
    case PointwiseMode::tan: return [](double x, double) { return std::tan(x); };
    case PointwiseMode::cmp_eq: return [](double x, double b) -> double { return x == b; };
    case PointwiseMode::cmp_ne: return [](double x, double b) -> double { return x != b; };
    case PointwiseMode::cmp_gt: return [](double x, double b) -> double { return x > b; };
    case PointwiseMode::cmp_ge: return [](double x, double b) -> double { return x >= b; };
    case PointwiseMode::cmp_lt: return [](double x, double b) -> double { return x < b; };
    case PointwiseMode::cmp_le: return [](double x, double b) -> double { return x <= b; };
    case PointwiseMode::logical_and:
      return [](double x, double b) -> double { return x != 0 && b != 0; };
    case PointwiseMode::logical_or:
      return [](double x, double b) -> double { return x != 0 || b != 0; };
    case PointwiseMode::identity:
    case PointwiseMode::binary_select:
    case PointwiseMode::gen_index: break;  // handled elsewhere
  }
  return [](double x, double) { return x; };
}

// 32-bit operations, which wrap around; // and % truncate. Null if integers do not have the
// operation.
Integer integer_operation(PointwiseMode mode) {
  using I = std::int64_t;
  switch (mode) {
    case PointwiseMode::add: return [](I x, I b) { return x + b; };
    case PointwiseMode::sub: return [](I x, I b) { return x - b; };
    case PointwiseMode::mul: return [](I x, I b) { return x * b; };
    case PointwiseMode::div: return [](I x, I b) { return b == 0 ? 0 : x / b; };
    case PointwiseMode::mod: return [](I x, I b) { return b == 0 ? 0 : x % b; };
    case PointwiseMode::min: return [](I x, I b) { return std::min(x, b); };
    case PointwiseMode::max: return [](I x, I b) { return std::max(x, b); };
    case PointwiseMode::abs: return [](I x, I) { return std::abs(x); };
    case PointwiseMode::neg: return [](I x, I) { return -x; };
    default: return nullptr;
  }
}

// Integers and booleans are exact.
void round_all(DType type, std::vector<double>& values) {
  if (type == DType::f32) {
    for (double& value : values) value = static_cast<float>(value);
  } else if (is_float(type)) {
    for (double& value : values) value = round_to(type, value);
  }
}

class Interpreter {
 public:
  Interpreter(const graph::BackendGraph& graph, const std::map<Uid, Operand>& operands)
      : graph_(graph), operands_(operands) {}

  Status run() {
    for (const graph::Node& node : graph_.nodes) {
      std::visit([this](const auto& each) { compute(each); }, node);
      ATTN_RETURN_IF_ERROR(status_);
    }
    return {};
  }

 private:
  const graph::Tensor& tensor(Uid uid) const { return *graph_.find(uid); }

  void fail(ErrorCode code, const std::string& message) {
    if (status_.ok()) status_ = Error{code, message};
  }

  // The value of a tensor; a tensor that is not virtual is read on first use.
  const Dense& value(Uid uid) {
    const auto found = values_.find(uid);
    if (found != values_.end()) return found->second;
    return values_.emplace(uid, given(tensor(uid))).first->second;
  }

  Dense given(const graph::Tensor& of) {
    Dense dense(dims_of(of));
    const auto operand = operands_.find(of.uid);
    if (operand == operands_.end()) {
      fail(ErrorCode::invalid_argument, fmt::format("%{} ({}) has no operand", of.uid, of.name));
    } else if (const double* scalar = std::get_if<double>(&operand->second)) {
      dense[0] = *scalar;
    } else {
      for_each_place(of, [&](std::int64_t element, const std::byte* place) {
        dense[element] = place == nullptr ? kNaN : io::load(of.dtype, place);
      });
    }
    return dense;
  }

  // Visits the address of each element in row-major order; null if a ragged tensor does not have
  // it.
  template <typename Visit>
  void for_each_place(const graph::Tensor& of, const Visit& visit) {
    const std::span<std::byte> memory = std::get<std::span<std::byte>>(operands_.at(of.uid));
    const Dims dims = dims_of(of), strides = strides_of(of);
    const Dense* starts = of.ragged ? &value(*of.ragged) : nullptr;
    const auto size = static_cast<std::int64_t>(size_of(of.dtype));
    std::int64_t element = 0;
    for_each_index(dims, [&](const Dims& index) {
      std::int64_t place = place_of(index, strides);
      if (starts != nullptr) {
        const std::int64_t inside = place - index[0] * strides[0];
        const auto begin = static_cast<std::int64_t>((*starts)[index[0]]);
        const auto end = static_cast<std::int64_t>((*starts)[index[0] + 1]);
        place = begin + inside;
        if (place >= end) return visit(element++, static_cast<std::byte*>(nullptr));
      }
      if (place < 0 || (place + 1) * size > static_cast<std::int64_t>(memory.size())) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("%{} ({}) is out of bounds of its memory", of.uid, of.name));
      }
      visit(element++, memory.data() + place * size);
    });
  }

  // Rounds the output of a node and stores it.
  void make(Uid uid, Dense dense) {
    const graph::Tensor& of = tensor(uid);
    round_all(of.dtype, dense.values);
    if (of.storage == graph::Storage::device && operands_.contains(uid)) {
      for_each_place(of, [&](std::int64_t element, std::byte* place) {
        if (place != nullptr) io::store(of.dtype, dense[element], place);
      });
    } else if (of.storage == graph::Storage::device) {
      fail(ErrorCode::invalid_argument, fmt::format("%{} ({}) has no operand", uid, of.name));
    }
    values_.insert_or_assign(uid, std::move(dense));
  }

  std::int64_t size_in(std::int64_t batch, const std::optional<Uid>& sizes, std::int64_t all) {
    return sizes ? static_cast<std::int64_t>(value(*sizes)[batch]) : all;
  }

  void compute(const graph::Matmul& node) {
    const Dense &a = value(node.a), &b = value(node.b);
    Dense c(dims_of(tensor(node.c)));
    const Dims of_a = a.strides(), of_b = b.strides(), of_c = c.strides();
    const std::int64_t group = a.dims[1] / b.dims[1];
    for (std::int64_t batch = 0; batch < c.dims[0]; ++batch) {
      const std::int64_t rows = size_in(batch, node.m, c.dims[2]);
      const std::int64_t columns = size_in(batch, node.n, c.dims[3]);
      const std::int64_t depth = size_in(batch, node.k, a.dims[3]);
      for (std::int64_t head = 0; head < c.dims[1]; ++head) {
        for (std::int64_t row = 0; row < rows; ++row) {
          double* sums = &c[place_of({batch, head, row, 0}, of_c)];
          for (std::int64_t k = 0; k < depth; ++k) {
            const double x = a[place_of({batch, head, row, k}, of_a)];
            const double* y = b.values.data() + place_of({batch, head / group, k, 0}, of_b);
            for (std::int64_t column = 0; column < columns; ++column) sums[column] += x * y[column];
          }
        }
      }
    }
    make(node.c, std::move(c));
  }

  void compute(const graph::Pointwise& node) {
    const Dims dims = dims_of(tensor(node.y));
    Dense y(dims);
    const Dense& x = value(node.x);
    if (node.mode == PointwiseMode::gen_index) {
      std::int64_t element = 0;
      for_each_index(dims, [&](const Dims& index) {
        y[element++] = static_cast<double>(index[static_cast<std::size_t>(*node.axis)]);
      });
    } else if (node.mode == PointwiseMode::binary_select) {
      select(y, value(*node.t), x, value(*node.b));
    } else {
      calculate(node, x, node.b ? value(*node.b) : x, y);
    }
    make(node.y, std::move(y));
  }

  static void select(Dense& y, const Dense& t, const Dense& x, const Dense& b) {
    const Dims of_t = t.broadcast(), of_x = x.broadcast(), of_b = b.broadcast();
    double* to = y.values.data();
    for_each_row(y.dims, [&](const Dims& index) {
      const RowOf choices(t, index, of_t), first(x, index, of_x), second(b, index, of_b);
      for (std::int64_t i = 0; i < y.dims[3]; ++i) *to++ = choices[i] != 0 ? first[i] : second[i];
    });
  }

  void calculate(const graph::Pointwise& node, const Dense& x, const Dense& b, Dense& y) {
    const Integer integers = node.compute == DType::i32 ? integer_operation(node.mode) : nullptr;
    const Real reals = real_operation_of(node);
    if (integers != nullptr && tensor(node.y).dtype == DType::i32) {
      const auto wrapped = [integers](double left, double right) -> double {
        return static_cast<std::int32_t>(
            integers(static_cast<std::int64_t>(left), static_cast<std::int64_t>(right)));
      };
      apply(wrapped, x, b, y);
    } else if (node.compute == DType::f32) {
      const auto rounded = [reals](double left, double right) {
        return reals(static_cast<float>(left), static_cast<float>(right));
      };
      apply(rounded, x, b, y);
    } else {
      apply(reals, x, b, y);
    }
  }

  // Applies the rules for rows without a visible score, if an operand is a row maximum or sum.
  Real real_operation_of(const graph::Pointwise& node) {
    if (node.b && maxima_.contains(*node.b) && node.mode == PointwiseMode::sub) return centred;
    if (node.b && sums_.contains(*node.b) && node.mode == PointwiseMode::div) return share;
    if (maxima_.contains(node.x) && node.mode == PointwiseMode::max) maxima_.insert(node.y);
    return real_operation(node.mode);
  }

  void compute(const graph::Reduction& node) {
    const bool is_max = node.op == graph::ReduceOp::max;
    (is_max ? maxima_ : sums_).insert(node.y);
    const Dense& x = value(node.x);
    Dense y(dims_of(tensor(node.y)), is_max ? -kInfinity : 0);
    const Dims strides = y.broadcast();
    const std::int64_t group = x.dims[1] / y.dims[1];
    const double* each = x.values.data();
    for_each_row(x.dims, [&](Dims index) {
      index[1] /= group;
      double* to = &y[place_of(index, strides)];
      for (std::int64_t i = 0; i < x.dims[3]; ++i, ++each, to += strides[3])
        *to = is_max ? larger(*each, *to) : *to + *each;
    });
    make(node.y, std::move(y));
  }

  void compute(const graph::Reshape& node) {
    const Dense& x = value(node.x);
    const Dims from = strides_of(tensor(node.x)), to = strides_of(tensor(node.y));
    Dense y(dims_of(tensor(node.y)));
    const std::int64_t size = std::max(last_place(x.dims, from), last_place(y.dims, to)) + 1;
    Dense memory({1, 1, 1, size}, kNaN);
    std::int64_t element = 0;
    for_each_index(x.dims,
                   [&](const Dims& index) { memory[place_of(index, from)] = x[element++]; });
    element = 0;
    for_each_index(y.dims, [&](const Dims& index) { y[element++] = memory[place_of(index, to)]; });
    make(node.y, std::move(y));
  }

  // Reads the scales as they lie in memory, in tiles of 128 elements and 4 blocks.
  void compute(const graph::BlockDequantize& node) {
    const Dense& x = value(node.x);
    const graph::Tensor& scales = tensor(node.scale);
    const std::size_t blocks = x.dims[3] > scales.dims[3] ? 3 : 2, elements = 5 - blocks;
    const auto found = operands_.find(node.scale);
    if (found == operands_.end()) return fail(ErrorCode::invalid_argument, "no scales");
    const std::span<std::byte> memory = std::get<std::span<std::byte>>(found->second);
    Dense y(x.dims);
    std::int64_t at = 0;
    for_each_index(x.dims, [&](const Dims& index) {
      const std::int64_t element = index[elements], block = index[blocks] / node.size;
      const std::int64_t matrix = index[0] * scales.dims[1] + index[1];
      const std::int64_t tiles = scales.dims[blocks] / 4;
      const std::int64_t tile =
          (matrix * (scales.dims[elements] / 128) + element / 128) * tiles + block / 4;
      const std::int64_t place =
          tile * 512 + element % 32 * 16 + element % 128 / 32 * 4 + block % 4;
      const double scale = io::load(scales.dtype, memory.data() + place);
      y[at] = x[at] * scale;
      ++at;
    });
    make(node.y, std::move(y));
  }

  void compute(const graph::PagedLoad& node) {
    const Dense &pool = value(node.container), &table = value(node.table);
    for (const double page : table.values) {  // cuDNN may use all of them
      if (!(page >= 0 && page < static_cast<double>(pool.dims[0])))
        return fail(ErrorCode::invalid_argument, "an entry of a page table is no page");
    }
    const Dims strides = strides_of(tensor(node.y));
    const bool turned = strides[2] < strides[3];
    const Dims of_pool = pool.strides();
    const Dense& lengths = value(node.lengths);
    Dense y(dims_of(tensor(node.y)), kNaN);
    std::int64_t element = 0;
    for_each_index(y.dims, [&](Dims index) {
      if (turned) std::swap(index[2], index[3]);
      const auto& [batch, head, row, column] = index;
      const std::int64_t at = element++, rows = pool.dims[2];
      if (static_cast<double>(row) >= lengths[batch]) return;
      const auto page = static_cast<std::int64_t>(table[batch * table.dims[2] + row / rows]);
      y[at] = pool[place_of({page, head, row % rows, column}, of_pool)];
    });
    make(node.y, std::move(y));
  }

  void compute(const graph::Rng&) { fail(ErrorCode::unsupported, "random numbers"); }
  void compute(const graph::BandMask&) { fail(ErrorCode::unsupported, "a band mask"); }
  void compute(const graph::SdpaForward&) { fail(ErrorCode::unsupported, "attention as one node"); }

  const graph::BackendGraph& graph_;
  const std::map<Uid, Operand>& operands_;
  std::map<Uid, Dense> values_;
  std::set<Uid> maxima_, sums_;
  Status status_;
};

// The values of nodes are large and do not live long. Given back to the system, their pages would
// be cleared again for the next ones, which takes as long as the computation.
bool keep_freed_memory() {
  return mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, -1) == 1;
}

}  // namespace

Status run(const graph::BackendGraph& graph, const std::map<Uid, Operand>& operands) {
  static const bool kept = keep_freed_memory();
  if (!kept) return {ErrorCode::internal, "mallopt refuses"};
  ATTN_RETURN_IF_ERROR(graph::validate(graph));
  return Interpreter(graph, operands).run();
}

}  // namespace attn::host
