// Expressions of the IR as statements of CUDA C++, one variable a node.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::derive {

std::string_view element_type(DType dtype);  // in memory

// The tensors and params that the expressions read, in the order of their declarations, and the
// parameters of a kernel that takes them: "const int* t_doc", "float p_c".
struct KernelInputs {
  std::vector<plan::OperandSource> operands;
  std::vector<std::string> parameters;
};
KernelInputs inputs_of(const ir::Attention& attention, const std::vector<ir::ExprId>& expressions);

// The same expressions' nodes that may have no value: loads whose indices, integer divisions whose
// divisors and shifts whose counts are not known to be in range. Ascending.
std::vector<ir::ExprId> faults_of(const ir::Attention& attention,
                                  const std::vector<ir::ExprId>& expressions);

// The indices of a load that are not known to be in range.
std::vector<ir::ExprId> unproven_indices(const ir::Attention& attention, ir::ExprId load);

class ExpressionWriter {
 public:
  // With `faults`, their numbers from 1 in this order are tracked beside the values, as the
  // reference evaluator does: not out of the branch that a select does not take, not beside `false
  // && x`. A condition that depends on the score, which stands for 0, lets pass only what both
  // sides have.
  explicit ExpressionWriter(const ir::Attention& attention, std::vector<ir::ExprId> faults = {});

  // Starts a new block of statements: the indices of `axes` from the element number i, row-major,
  // of dims; other indices are 0.
  void begin(const passes::Axes& axes, const std::vector<std::int64_t>& dims);

  // The same where the kernel has those indices already: in b, h, row and column.
  void begin(const passes::Axes& axes);

  // What the score is in this block, of type double; 0 unless it is given.
  void set_score(const std::string& value);

  // The expression's value: a name or a literal, of type bool, int or double.
  std::string value(ir::ExprId id);
  // The number of its fault, an int, 0 when it has a value; "0" when it always has one. After
  // value.
  std::string fault(ir::ExprId id) const;
  // Whether a node of faults_of fails by itself, a bool. After value() of its operands.
  std::string failure(ir::ExprId id) const;

  // The number, row-major, of the element that a load reads. After value() of its operands.
  std::string element(ir::ExprId load) const;

  // The block's statements, each line indented by `indent` columns.
  std::string statements(std::size_t indent) const;

 private:
  std::string named(ir::ExprId id);
  std::string operation(ir::ExprId id) const;
  std::string load(ir::ExprId id, const std::string& name);
  std::string held(ir::ExprId id) const;
  std::string out_of_range(ir::ExprId index, std::int64_t low, std::int64_t high) const;
  void track(ir::ExprId id, const std::string& name);
  std::string tracked(ir::ExprId id) const;
  std::string logic_fault(const ir::Node& node) const;
  std::string operands_fault(const ir::Node& node) const;
  bool depends_on_score(ir::ExprId id) const;

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  std::map<ir::ExprId, int> numbers_;  // of faults
  passes::Axes varying_;
  std::string score_ = "0.0";
  std::vector<std::string> lines_;
  std::map<ir::ExprId, std::string> names_;
  std::map<ir::ExprId, std::string> fault_names_;  // of those that may have one
};

}  // namespace attn::derive
