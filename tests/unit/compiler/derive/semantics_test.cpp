// Derive kernels, compiled for the host, against the reference evaluator.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>

#include "compiler/derive/emit.h"
#include "runtime/reference/row_evaluator.h"
#include "tests/unit/compiler/derive/cuda_on_host.h"
#include "tests/unit/compiler/derive/random_cases.h"

extern void (*const kKernels[])(void* const*);
double half_on_host(unsigned short bits);
double bfloat_on_host(unsigned short bits);

namespace attn::derive::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kElements = std::size_t{2} * 4 * 6 * kColumns;

reference::Bindings bindings(double param) {
  reference::Bindings bindings;
  bindings.params["p"] = param;
  bindings.tensors["t"] = {DType::f32, {4}, {1.5, -0.0, 2.0, -kInfinity}};
  bindings.tensors["n"] = {
      DType::i32, {kColumns}, {0, 1, -1, 2147483647, -2147483648.0, 5, 3, 2, 9, 31}};
  bindings.tensors["keep"] = {DType::boolean, {kColumns}, {1, 0, 0, 1, 1, 0, 1, 0, 1, 1}};
  return bindings;
}

// The bindings' values in the memory that a kernel reads, and room for what it writes.
class Memory {
 public:
  Memory(const Case& what, const KernelSource& source, const reference::Bindings& values) {
    for (std::size_t i = 0; i < what.outputs.size(); ++i) add(outputs_[i].data());
    for (const plan::OperandSource& input : source.inputs) {
      const auto* tensor = std::get_if<plan::TensorOperand>(&input);
      if (tensor == nullptr) {
        param_ = static_cast<float>(values.params.at("p"));
        arguments_.push_back(&param_);
      } else {
        add(tensor_values(tensor->name, values.tensors.at(tensor->name).values));
      }
    }
  }

  void run(unsigned kernel) {
    for (std::size_t i = 0; i < kElements * 3; ++i) {  // of up to three outputs
      blockIdx.x = static_cast<unsigned>(i / 256);
      threadIdx.x = static_cast<unsigned>(i % 256);
      kKernels[kernel](arguments_.data());
    }
  }

  double integer(std::size_t output, std::size_t i) const {
    std::int32_t value;
    std::memcpy(&value, &outputs_[output][i], sizeof value);
    return value;
  }
  float real(std::size_t output, std::size_t i) const { return outputs_[output][i]; }

 private:
  void add(void* pointer) {
    pointers_.push_back(pointer);
    arguments_.push_back(&pointers_.back());
  }

  void* tensor_values(const std::string& name, const std::vector<double>& values) {
    if (name == "t") return (t_.assign(values.begin(), values.end()), t_.data());
    if (name == "n") return (n_.assign(values.begin(), values.end()), n_.data());
    return (keep_.assign(values.begin(), values.end()), keep_.data());
  }

  std::vector<float> outputs_[3] = {std::vector<float>(kElements), std::vector<float>(kElements),
                                    std::vector<float>(kElements)};
  std::vector<float> t_;
  std::vector<std::int32_t> n_;
  std::vector<unsigned char> keep_;
  float param_ = 0;
  std::deque<void*> pointers_;
  std::vector<void*> arguments_;
};

bool same(float actual, double expected) {
  const auto rounded = static_cast<float>(expected);
  return actual == rounded || (std::isnan(actual) && std::isnan(rounded));
}

// Elements compared; those without a value are left out.
int compare(const Case& what, std::size_t output, const Memory& memory,
            const reference::Bindings& values) {
  const ir::ExprId roots[] = {what.outputs[output].expression};
  reference::RowEvaluator evaluator(what.attention, values, roots);
  const std::vector<double> scores(kColumns);
  int compared = 0;
  for (std::size_t row = 0; row < kElements / kColumns; ++row) {
    const auto place = static_cast<std::int64_t>(row);
    evaluator.run({place / 24, place / 6 % 4, place % 6}, scores);
    for (std::size_t column = 0; column < kColumns; ++column) {
      const reference::Cell& cell = evaluator.cells(roots[0])[column];
      if (cell.fault) continue;
      const std::size_t i = row * kColumns + column;
      const bool real = what.outputs[output].dtype == DType::f32;
      EXPECT_TRUE(real ? same(memory.real(output, i), cell.value)
                       : memory.integer(output, i) == cell.value)
          << (real ? memory.real(output, i) : memory.integer(output, i)) << " for " << cell.value
          << " of " << ir::to_source(what.attention, roots[0]) << " at row " << row << ", column "
          << column;
      ++compared;
    }
  }
  return compared;
}

TEST(DeriveSemantics, AreTheReferencesOnRandomExpressions) {
  int compared = 0;
  for (unsigned seed = 0; seed < kCases && !HasFailure(); ++seed) {
    const Case what = random_case(seed);
    const KernelSource source = emit_kernel(what.attention, what.outputs);
    for (const double param : {0.75, -kInfinity}) {
      const reference::Bindings values = bindings(param);
      Memory memory(what, source, values);
      memory.run(seed);
      for (std::size_t i = 0; i < what.outputs.size(); ++i) {
        compared += compare(what, i, memory, values);
      }
    }
  }
  EXPECT_GT(compared, 100000);
}

TEST(DeriveSemantics, NarrowFloatsAreReadExactly) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double values[] = {half_on_host(half), bfloat_on_host(half)};
    const double expected[] = {from_f16_bits(half), from_bf16_bits(half)};
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i])))
          << bits;
    }
  }
}

}  // namespace
}  // namespace attn::derive::testing
