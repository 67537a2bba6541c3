// Derive kernels, compiled for the host, against the reference evaluator.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "compiler/codegen/emit.h"
#include "compiler/reference/row_evaluator.h"
#include "tests/unit/compiler/codegen/cuda_on_host.h"
#include "tests/unit/compiler/codegen/random_cases.h"

extern void (*const kKernels[])(void* const*);
extern const CheckKernels kChecks[];
double half_on_host(unsigned short bits);
double bfloat_on_host(unsigned short bits);

namespace attn::codegen::testing {
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

// The bindings' values in the memory that a kernel reads, and memory for its outputs.
class Memory {
 public:
  Memory(std::size_t outputs, const std::vector<plan::OperandSource>& inputs,
         const reference::Bindings& values) {
    for (std::size_t i = 0; i < outputs; ++i) add(outputs_[i].data());
    read(inputs, values);
  }
  // For a check.
  Memory(const std::vector<plan::OperandSource>& inputs, const reference::Bindings& values) {
    add(&word_);
    read(inputs, values);
  }

  void run(void (*kernel)(void* const*), std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i) {
      blockIdx.x = static_cast<unsigned>(i / 256);
      threadIdx.x = static_cast<unsigned>(i % 256);
      kernel(arguments_.data());
    }
  }

  std::uint64_t take_word() { return std::exchange(word_, ~std::uint64_t{0}); }

  double integer(std::size_t output, std::size_t i) const {
    std::int32_t value;
    std::memcpy(&value, &outputs_[output][i], sizeof value);
    return value;
  }
  float real(std::size_t output, std::size_t i) const { return outputs_[output][i]; }

 private:
  void read(const std::vector<plan::OperandSource>& inputs, const reference::Bindings& values) {
    for (const plan::OperandSource& input : inputs) {
      const auto* tensor = std::get_if<plan::TensorOperand>(&input);
      if (tensor == nullptr) {
        param_ = static_cast<float>(values.params.at("p"));
        arguments_.push_back(&param_);
      } else {
        add(tensor_values(tensor->name, values.tensors.at(tensor->name).values));
      }
    }
  }

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
  std::uint64_t word_ = ~std::uint64_t{0};
  std::deque<void*> pointers_;
  std::vector<void*> arguments_;
};

bool same(float actual, double expected) {
  const auto rounded = static_cast<float>(expected);
  return actual == rounded || (std::isnan(actual) && std::isnan(rounded));
}

// Returns how many elements were compared; those without a value are skipped.
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
    const plan::DeriveStep source = emit_step(what.attention, what.outputs);
    for (const double param : {0.75, -kInfinity}) {
      const reference::Bindings values = bindings(param);
      Memory memory(what.outputs.size(), source.inputs, values);
      memory.run(kKernels[seed], kElements * 3);  // of up to three outputs
      for (std::size_t i = 0; i < what.outputs.size(); ++i) {
        compared += compare(what, i, memory, values);
      }
    }
  }
  EXPECT_GT(compared, 100000);
}

// What the exact kernel must find: the first score that depends on an element without a value.
std::uint64_t first_fault(const CheckCase& what, const reference::Bindings& values) {
  const ir::Attention& attention = what.attention;
  std::vector<ir::ExprId> roots = attention.masks;
  roots.push_back(attention.score);
  reference::RowEvaluator evaluator(attention, values, roots);
  const std::vector<std::int64_t>& dims = what.check->scores;
  const std::vector<double> scores(kColumns);
  std::uint64_t i = 0;
  for (std::int64_t row = 0; row < dims[0] * dims[1] * dims[2]; ++row) {
    evaluator.run({row / dims[2] / dims[1], row / dims[2] % dims[1], row % dims[2]}, scores);
    for (std::size_t column = 0; column < static_cast<std::size_t>(dims[3]); ++column, ++i) {
      std::optional<ir::ExprId> fault;
      bool hidden = false;
      for (const ir::ExprId root : roots) {
        const reference::Cell& cell = evaluator.cells(root)[column];
        hidden |= root != attention.score && !cell.fault && cell.value == 0;
        if (!fault) fault = cell.fault;
      }
      if (hidden || !fault) continue;
      const std::string text = ir::to_source(attention, *fault);
      const auto& faults = what.check->faults;
      const auto found = std::ranges::find(faults, text, &plan::IndexCheck::Fault::expression);
      if (found == faults.end()) continue;  // int() out of range is not checked
      return i << 16 | static_cast<std::uint64_t>(found - faults.begin() + 1);
    }
  }
  return ~std::uint64_t{0};
}

// Checks are exact only for conditions that do not depend on the score.
bool has_plain_conditions(const ir::Attention& attention) {
  const auto& dag = attention.dag;
  const auto ids = ir::reachable(dag, attention.roots());
  return std::ranges::none_of(ids, [&dag](ir::ExprId id) {
    const ir::Node& node = dag[id];
    const bool logic = node.is(ir::Op::and_) || node.is(ir::Op::or_);
    return (node.is(ir::Op::select_) && depends_on_score(dag, node.operands[0])) ||
           (logic && depends_on_score(dag, id)) || node.is(ir::Op::truncate_);
  });
}

TEST(DeriveSemantics, AreCheckedByTheReferencesRules) {
  int found = 0, matterless = 0, nothing = 0;
  for (unsigned seed = 0; seed < kCheckSeeds && !HasFailure(); ++seed) {
    const CheckCase what = random_check(seed);
    ASSERT_EQ(what.check.has_value(), kChecks[seed].quickly != nullptr);
    if (!what.check || !has_plain_conditions(what.attention)) continue;
    const reference::Bindings values = bindings(0.75);
    Memory memory(what.check->inputs, values);
    memory.run(kChecks[seed].quickly, static_cast<std::size_t>(what.check->quick));
    const bool anything = memory.take_word() == 0;
    memory.run(kChecks[seed].exactly, kElements);
    const std::uint64_t word = memory.take_word();
    EXPECT_EQ(word, first_fault(what, values)) << ir::to_text(what.attention);
    const bool matters = word != ~std::uint64_t{0};
    EXPECT_TRUE(anything || !matters) << seed;
    ++(matters ? found : anything ? matterless : nothing);
  }
  EXPECT_GT(found, 20);
  EXPECT_GT(matterless, 3);
  EXPECT_GT(nothing, 0);
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
}  // namespace attn::codegen::testing
