// Writes IR expressions as CUDA C++ statements, one variable per node. Sums and the like of many
// terms that differ in constants alone become loops (repetition.h), whose turns are added in order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen/repetition.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/range.h"
#include "compiler/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

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
  ExpressionWriter(const ExpressionWriter&) = delete;
  ExpressionWriter& operator=(const ExpressionWriter&) = delete;

  // Starts a new block of statements, with the indices of `axes` computed from the row-major
  // element number i of `dims`; other indices are 0.
  void begin(const masks::Axes& axes, const std::vector<std::int64_t>& dims);

  // The same if the kernel already has those indices in b, h, row and column.
  void begin(const masks::Axes& axes);

  // The block is of one of `turns` members of families, which `variable` counts.
  void repeat(const std::string& variable, std::size_t turns);

  // Sets the score of this block, a real; it is 0 by default.
  void set_score(const std::string& value);

  // Makes elements of this tensor 0 wherever they are read from now on.
  void leave_out(const std::string& tensor) { left_out_.insert(tensor); }

  // Makes this the text of a value, which is then not computed.
  void set_value(ir::ExprId id, const std::string& text);

  // The expression's value: a name or a literal, of type bool, int, long long, or double
  // (float in single).
  std::string value(ir::ExprId id) { return value(Family{id}); }
  // The same of a member of a family of the block's turns.
  std::string value(const Family& family);
  // The number of its fault, an int: 0 if it has a value. The text is "0" if it always has one.
  // Call after value().
  std::string fault(ir::ExprId id) const { return fault_of(Family{id}); }
  // Whether a node of faults_of itself fails, a bool. Call after value() of its operands.
  std::string failure(ir::ExprId id) { return failure(Family{id}); }
  std::string failure(const Family& family);

  // The row-major number of the element that a load reads. Call after value() of its operands.
  std::string element(ir::ExprId load) { return element(Family{load}); }
  std::string element(const Family& loads);

  // The block's statements, each line indented by `indent` columns.
  std::string statements(std::size_t indent) const;

 private:
  // The body of a loop, or, first, the block.
  struct Scope {
    std::string variable{};
    std::size_t turns = 1;
    std::size_t size = 1;  // of its families: the turns of all loops up to here
    std::vector<std::string> lines{};
    std::map<Family, std::string> names{};
    std::map<Family, std::string> faults{};  // of those that may have one
  };
  // What a loop adds to.
  struct Sum {
    ir::Op op;
    ir::Type type;
    std::string name;
    std::size_t scope;        // where it is declared
    std::string fault = "0";  // the name of its fault
    bool scored = false;      // depends on the score
  };

  // An operand of a conjunction.
  struct Side {
    std::string value, fault;
  };

  void forget_repetitions();
  // The same value, of as few loops as it depends on.
  Family reduced(Family family) const;
  std::size_t scope_of(const Family& reduced) const;
  void add_line(std::string line);
  void name(const Family& family);
  std::vector<ir::ExprId> without_names(ir::ExprId root);
  std::string named(const Family& family);
  std::string new_name(char kind) const;
  std::string reserved_name(char kind);
  static std::size_t names_of(const std::vector<Scope>& scopes);
  std::string varying(const Family& constants);
  std::string varying_integer(const std::vector<std::int64_t>& values);
  std::string varying_wide(const std::vector<std::int64_t>& values);
  std::optional<std::string> as_linear(const std::vector<std::int64_t>& values) const;
  std::string table(std::string_view type, const std::vector<std::string>& values);
  std::string looped(const Family& family, const Repetition& repetition);
  void add_loop(const Repetition::Terms& terms, Sum& sum);
  void add_term(const Family& term, Sum& sum);
  std::string operation(const Family& family);
  std::string pattern_of(ir::Op op, ir::Type operands) const;
  std::optional<std::string> faster_pattern(const Family& family);
  std::string_view c_type(ir::Type type) const;
  std::string in_precision(std::string text) const;
  std::string load(const Family& family, const std::string& name);
  std::string operand(const Family& family, std::size_t i) const;
  std::string out_of_range(const Family& family, std::size_t i, std::int64_t low,
                           std::int64_t high);
  std::string fault_of(const Family& family) const;
  std::string fault_of(const Family& family, std::size_t i) const;
  void track(const Family& family, const std::string& name);
  std::string tracked(const Family& family);
  std::string number_of(const Family& family);
  std::string operands_fault(const Family& family) const;
  static std::string either_fault(ir::Op op, const Side& x, const Side& y, bool scored);
  bool depends_on_score(ir::ExprId id) const;

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  std::map<ir::ExprId, int> numbers_;  // of faults
  Precision precision_;
  masks::WholeRanges ranges_;
  masks::Axes varying_;
  std::string score_ = "0.0";
  std::set<ir::ExprId> given_;  // of set_value
  std::set<std::string> left_out_;
  std::optional<Repetitions> repetitions_;
  std::vector<Scope> scopes_;
  std::size_t reserved_ = 0;  // names besides those of the scopes' expressions
};

}  // namespace attn::codegen
