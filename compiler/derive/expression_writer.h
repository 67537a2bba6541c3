// Writes IR expressions as CUDA C++ statements, one variable per node.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// The tensors and params that the expressions read, in the order of their declarations, and the
// parameters of a kernel that takes them: "const int* t_doc", "float p_c".
struct KernelInputs {
  std::vector<plan::OperandSource> operands;
  std::vector<std::string> parameters;
};
KernelInputs inputs_of(const ir::Attention& attention, const std::vector<ir::ExprId>& expressions);

// The nodes of the expressions that may have no value: loads, integer divisions and shifts whose
// indices, divisors or counts are not known to be in range. Ascending.
std::vector<ir::ExprId> faults_of(const ir::Attention& attention,
                                  const std::vector<ir::ExprId>& expressions);

// The indices of a load that are not known to be in range.
std::vector<ir::ExprId> unproven_indices(const ir::Attention& attention, ir::ExprId load);

// How reals are computed: as the reference does, or as fused kernels do.
enum class Precision : std::uint8_t { in_double, in_single };

class ExpressionWriter {
 public:
  // With `faults`, their numbers (from 1, in this order) are tracked beside the values, as the
  // reference evaluator does: not those in the branch that a select does not take, nor beside
  // `false && x`. If a condition depends on the score, which is 0 here, only faults of both sides
  // count.
  explicit ExpressionWriter(const ir::Attention& attention, std::vector<ir::ExprId> faults = {},
                            Precision precision = Precision::in_double);

  // Starts a new block of statements, with the indices of `axes` computed from the row-major
  // element number i of `dims`; other indices are 0.
  void begin(const passes::Axes& axes, const std::vector<std::int64_t>& dims);

  // The same if the kernel already has those indices in b, h, row and column.
  void begin(const passes::Axes& axes);

  // Sets the score of this block, a real; it is 0 by default.
  void set_score(const std::string& value);

  // Makes this the text of a value, which is then not computed.
  void set_value(ir::ExprId id, const std::string& text) { names_[id] = text; }

  // The expression's value: a name or a literal, of type bool, int, or double (float in single).
  std::string value(ir::ExprId id);
  // The number of its fault, an int: 0 if it has a value. The text is "0" if it always has one.
  // Call after value().
  std::string fault(ir::ExprId id) const;
  // Whether a node of faults_of itself fails, a bool. Call after value() of its operands.
  std::string failure(ir::ExprId id) const;

  // The row-major number of the element that a load reads. Call after value() of its operands.
  std::string element(ir::ExprId load) const;

  // The block's statements, each line indented by `indent` columns.
  std::string statements(std::size_t indent) const;

 private:
  std::vector<ir::ExprId> without_names(ir::ExprId root) const;
  std::string named(ir::ExprId id);
  std::string operation(ir::ExprId id) const;
  std::optional<std::string> faster_pattern(const ir::Node& node) const;
  std::string_view c_type(ir::Type type) const;
  std::string in_precision(std::string text) const;
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
  Precision precision_;
  passes::Axes varying_;
  std::string score_ = "0.0";
  std::vector<std::string> lines_;
  std::map<ir::ExprId, std::string> names_;
  std::map<ir::ExprId, std::string> fault_names_;  // of those that may have one
};

}  // namespace attn::derive
