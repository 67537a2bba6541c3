#include "compiler/reference/sums.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/ir/key_sums.h"
#include "compiler/reference/bindings.h"
#include "compiler/reference/problem.h"
#include "compiler/reference/reverse.h"
#include "compiler/reference/row_evaluator.h"

namespace attn::reference {
namespace {

using ir::Dim;
using ir::ExprId;

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Evaluates what is summed, a row of keys at a time.
class Rows {
 public:
  Rows(const ir::Attention& attention, const Bindings& bindings, const ir::KeySum& sum)
      : sum_(sum),
        heads_(sum.of_head ? attention.dims[Dim::Hq] : 1),
        count_((sum.of_batch ? attention.dims[Dim::B] : 1) * heads_),
        scores_(static_cast<std::size_t>(attention.dims[Dim::Skv])),
        evaluator_(attention, bindings, std::span(&sum.value, 1)) {}

  std::int64_t count() const { return count_; }
  std::size_t keys() const { return scores_.size(); }
  const RowEvaluator& evaluator() const { return evaluator_; }
  double value(std::size_t key) const { return evaluator_.cells(sum_.value)[key].value; }

  Status run(std::int64_t row) {
    evaluator_.run({row / heads_, row % heads_, 0, 0}, scores_);
    const std::vector<Cell>& cells = evaluator_.cells(sum_.value);
    const auto bad =
        std::ranges::find_if(cells, [](const Cell& cell) { return cell.fault.has_value(); });
    if (bad == cells.end()) return {};
    return evaluator_.describe(*bad->fault, static_cast<std::size_t>(bad - cells.begin()));
  }

 private:
  const ir::KeySum& sum_;
  std::int64_t heads_, count_;
  std::vector<double> scores_;
  RowEvaluator evaluator_;
};

std::vector<std::int64_t> dims_of(const ir::Attention& attention, const ir::KeySum& sum) {
  std::vector<std::int64_t> dims;
  if (sum.of_batch) dims.push_back(attention.dims[Dim::B]);
  if (sum.of_head) dims.push_back(attention.dims[Dim::Hq]);
  dims.push_back(attention.dims[Dim::Skv]);
  return dims;
}

Result<io::HostTensor> values_of(const ir::Attention& attention, const Bindings& bindings,
                                 const ir::KeySum& sum) {
  io::HostTensor sums = zeros(DType::f64, dims_of(attention, sum));
  Rows rows(attention, bindings, sum);
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    ATTN_RETURN_IF_ERROR(rows.run(row));
    double total = 0;
    double* to = sums.values.data() + row * static_cast<std::int64_t>(rows.keys());
    for (std::size_t key = 0; key < rows.keys(); ++key) to[key] = total += rows.value(key);
  }
  return sums;
}

// What the gradient by a value that is summed is: the sum of those by all sums that it is part of.
struct Cotangent {
  double sum = 0;
  double squares = 0;  // of the sizes of what is added

  void add(double gradient, double size) {
    sum += gradient;
    squares += size * size;
  }
};

// Goes on from the gradient of a sum to those of learned tensors.
class Onward {
 public:
  Onward(const ir::Attention& attention, const Bindings& bindings, const ir::KeySum& sum)
      : dag_(attention.dag),
        rows_(attention, bindings, sum),
        reverse_(dag_, rows_.evaluator(), sum.value) {}

  // `of` and `sizes` (or null) have the sum's gradient and, of those listed, the tensors' ones.
  Status run(const std::string& sum, const std::vector<std::string>& names, GradientSums& of,
             GradientSums* sizes) {
    const io::HostTensor &gradient = of.at(sum), *size = sizes ? &sizes->at(sum) : nullptr;
    for (std::int64_t row = 0; row < rows_.count(); ++row) {
      ATTN_RETURN_IF_ERROR(rows_.run(row));
      Cotangent cotangent;
      for (std::size_t key = rows_.keys(); key-- > 0;) {
        const std::size_t at = static_cast<std::size_t>(row) * rows_.keys() + key;
        cotangent.add(gradient.values[at], size ? size->values[at] : 0);
        // An element that no score reads may be anything.
        if (cotangent.sum == 0 && cotangent.squares == 0) continue;
        add(key, cotangent, names, of, sizes);
      }
    }
    return {};
  }

 private:
  void add(std::size_t key, const Cotangent& cotangent, const std::vector<std::string>& names,
           GradientSums& of, GradientSums* sizes) {
    reverse_.run(key, 1);
    for (const ExprId load : reverse_.loads()) {
      const std::string& name = dag_.symbol_of(load);
      if (!is_among(names, name) || !reverse_.is_reached(load)) continue;
      const auto element = static_cast<std::size_t>(*rows_.evaluator().element(load, key));
      const double local = reverse_.cotangent(load);
      of.at(name).values[element] += cotangent.sum == 0 ? 0 : cotangent.sum * local;
      if (sizes) sizes->at(name).values[element] += cotangent.squares * local * local;
    }
  }

  const ir::Dag& dag_;
  Rows rows_;
  ReverseMode reverse_;
};

// The names whose gradients the attention with given sums has: those asked for, and sums.
std::vector<std::string> names_of_given(const ir::Attention& attention, const ir::Attention& given,
                                        const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    const ir::CapturedTensor* tensor = given.find_tensor(name);
    if (tensor == nullptr || tensor->learned) all.push_back(name);
  }
  for (const ir::KeySum& sum : attention.sums) {
    if (given.find_tensor(sum.tensor.name)->learned) all.push_back(sum.tensor.name);
  }
  return all;
}

// Sizes between as sums of squares and as roots of them.
void each_value(GradientSums& sums, const std::vector<std::string>& names,
                double (*change)(double)) {
  for (const std::string& name : names) {
    for (double& value : sums.at(name).values) value = change(value);
  }
}

double squared(double x) { return x * x; }
double root(double x) { return std::sqrt(x); }

}  // namespace

Status add_sums(const ir::Attention& attention, Bindings& bindings) {
  for (const ir::KeySum& sum : attention.sums) {
    ATTN_ASSIGN(bindings.tensors[sum.tensor.name], values_of(attention, bindings, sum));
  }
  return {};
}

Result<GivenSums> with_sums(const ir::Attention& attention, const Inputs& inputs,
                            const Options& options) {
  ATTN_ASSIGN(const Bindings bindings, bind(attention, inputs, options.unrounded));
  GivenSums given{ir::with_sums_given(attention), inputs};
  for (const ir::KeySum& sum : attention.sums) {
    ATTN_ASSIGN(given.inputs.tensors[sum.tensor.name], values_of(attention, bindings, sum));
  }
  return given;
}

Result<Gradients> gradients_through_sums(const ir::Attention& attention, const Inputs& inputs,
                                         const io::HostTensor& d_o,
                                         const std::vector<std::string>& names,
                                         const Options& options) {
  ir::Attention wanted = attention;
  if (!attention.gradients.empty()) wanted.gradients = names;
  ATTN_ASSIGN(const GivenSums given, with_sums(wanted, inputs, options));
  ATTN_ASSIGN(Gradients result,
              gradients(given.attention, given.inputs, d_o,
                        names_of_given(attention, given.attention, names), options));
  ATTN_ASSIGN(const Bindings bindings, bind(attention, inputs, options.unrounded));
  std::vector<std::string> summed = ir::summed_with_gradients(wanted);
  std::erase_if(summed, [&](const std::string& name) { return !is_among(names, name); });
  for (const std::string& name : summed) {
    const std::vector<std::int64_t>& dims = bindings.tensors.at(name).dims;
    result.of.try_emplace(name, zeros(options.unrounded ? DType::f64 : DType::f32, dims));
    if (options.sizes) result.sizes.try_emplace(name, zeros(DType::f64, dims));
  }
  if (options.sizes) each_value(result.sizes, summed, squared);
  for (const ir::KeySum& sum : attention.sums) {
    if (!given.attention.find_tensor(sum.tensor.name)->learned) continue;
    Onward onward(attention, bindings, sum);
    ATTN_RETURN_IF_ERROR(
        onward.run(sum.tensor.name, summed, result.of, options.sizes ? &result.sizes : nullptr));
    result.of.erase(sum.tensor.name);
    result.sizes.erase(sum.tensor.name);
  }
  if (options.sizes) each_value(result.sizes, summed, root);
  if (options.unrounded) return result;
  for (const std::string& name : summed) {
    for (double& value : result.of.at(name).values)
      value = round_to(bindings.tensors.at(name).dtype, value);
  }
  return result;
}

}  // namespace attn::reference
