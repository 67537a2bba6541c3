// A program: what executing one attention means, as an ordered list of steps over named tensors.
// Most specs are one cuDNN plan; what it cannot compute for itself is derived by a kernel generated
// from the IR before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/graph/backend_graph.h"

namespace attn::plan {

// `control`: what layouts and random numbers are controlled by (page tables, offsets, seeds).
// `internal`: made and read by steps, never bound. Of a backward program: `saved`, o and lse, which
// the forward made; `cotangent`, do; `gradient`, dq, dk, dv and d_NAME, which it makes.
enum class TensorRole : std::uint8_t {
  query,
  key,
  value,
  captured,
  output,
  stats,
  control,
  internal,
  saved,
  cotangent,
  gradient
};
std::string_view to_string(TensorRole role);
std::optional<TensorRole> parse_tensor_role(std::string_view text);

// A device tensor that the caller binds by name, or an internal one. Dims in logical order (q and o
// [B,Hq,Sq,D], k and v [B,Hkv,Skv,D], lse [B,Hq,Sq], captured as declared); strides in elements,
// any order. Internal ones are packed, row-major, aligned to 256.
struct TensorInfo {
  std::string name;
  TensorRole role = TensorRole::captured;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::int64_t alignment = 16;  // bytes that the base address must be a multiple of
  // The control tensor that says where its rows lie. A page table: the dims are those of the pool,
  // [pages,H,page,D]. cu_seqlens (i32, [B+1]): batch b begins at row cu_seqlens[b], the stride of
  // the batch is not used, and memory need only hold the rows that there are.
  std::string addressed_by{};

  bool is_output() const {
    return role == TensorRole::output || role == TensorRole::stats || role == TensorRole::gradient;
  }
  bool operator==(const TensorInfo&) const = default;
};

inline constexpr std::int64_t kInternalAlignment = 256;

// A scalar given at run time; not part of the plan.
struct ParamInfo {
  std::string name;
  DType dtype = DType::f32;  // f32 or i32
  bool operator==(const ParamInfo&) const = default;
};

// Where the value of a non-virtual graph tensor comes from when a step runs.
struct TensorOperand {
  std::string name;          // of a TensorInfo
  std::int64_t offset = 0;   // elements of it that lie before what is meant
  std::int64_t advance = 0;  // elements by which the offset grows with each turn of a loop
  bool operator==(const TensorOperand&) const = default;
};
struct ConstantOperand {
  DType dtype = DType::f32;  // f32 or i32
  double value = 0;          // may be infinite
  bool operator==(const ConstantOperand&) const = default;
};
struct ParamOperand {
  std::string name;  // of a ParamInfo
  bool operator==(const ParamOperand&) const = default;
};
// Device memory that holds 0, 1, .. count - 1 as i32: made by the runtime when it loads the plan.
struct CountingOperand {
  std::int64_t count = 1;  // 1 .. 2^31
  bool operator==(const CountingOperand&) const = default;
};
using OperandSource = std::variant<TensorOperand, ConstantOperand, ParamOperand, CountingOperand>;

struct Operand {
  graph::Uid uid = 0;
  OperandSource source;
  bool operator==(const Operand&) const = default;
};

// One cuDNN execution plan. Every non-virtual tensor of the graph has exactly one operand.
struct CudnnStep {
  graph::BackendGraph graph;
  std::vector<Operand> operands;
  std::int64_t turns = 1;  // above 1: in a loop
  bool operator==(const CudnnStep&) const = default;
};

// A kernel generated from the IR that fills internal tensors or outputs, element by element. One
// launch: thread i makes element i of all outputs laid one behind the other, row-major; what comes
// after the last does nothing. Arguments: a pointer to each output, then the inputs: pointers to
// tensors, params by value (float or int).
struct DeriveStep {
  // The outputs depend on nothing that the caller gives: they are made when the plan is loaded, and
  // live as long as the executable; others are made anew at every execute, in the workspace.
  bool once = false;
  std::vector<std::string> outputs;      // names of internal tensors, or of the program's outputs
  std::vector<std::string> expressions;  // what each is, in the language's syntax: for people
  std::vector<OperandSource> inputs;     // TensorOperand (captured or internal) or ParamOperand
  std::string source;                    // CUDA C++; the kernel is kDeriveKernel
  // Not 0: the outputs have been made, and this many threads overwrite some of their elements.
  std::int64_t amends = 0;
  std::int64_t turns = 1;  // above 1: in a loop
  bool operator==(const DeriveStep&) const = default;
};
inline constexpr const char* kDeriveKernel = "attn_derive";
inline constexpr std::size_t kMostOutputs = 16;  // of one derive step

// Adjacent steps with the same number of turns, above 1, are a loop: they run in order, then all of
// them again, that many times in all. Operands advance from turn to turn; of what a loop writes,
// only internal tensors may be new, and what does not advance is overwritten in each turn.
using Step = std::variant<CudnnStep, DeriveStep>;
std::int64_t turns_of(const Step& step);

// Two kernels that look, when tensors are bound, for elements of derived tensors that have no value
// (a gather outside its tensor, an integer division by 0) although a score depends on it. Their
// arguments: a pointer to a 64-bit word that holds only ones, then the inputs as those of a derive
// step.
//
// kQuickCheckKernel, of `quick` threads, sets the word to 0 when anything has no value, whether it
// matters or not. kExactCheckKernel, a thread for each element of `scores`, lowers it to 65536 i +
// n where score i, row-major, depends on faults[n - 1]; the first of those stays.
struct IndexCheck {
  struct Fault {
    std::string expression;  // in the language's syntax
    std::string what;        // "an index is outside the tensor"
    bool operator==(const Fault&) const = default;
  };
  std::vector<Fault> faults;
  std::vector<OperandSource> inputs;
  std::int64_t quick = 0;
  std::vector<std::int64_t> scores;  // [B, Hq, Sq, Skv], 1 where nothing varies
  std::string source;                // CUDA C++
  bool operator==(const IndexCheck&) const = default;
};
inline constexpr const char* kQuickCheckKernel = "attn_check_quickly";
inline constexpr const char* kExactCheckKernel = "attn_check_exactly";
inline constexpr std::int64_t kMostChecked = std::int64_t{1} << 38;  // threads of either
inline constexpr std::size_t kMostFaults = 65535;

struct Program {
  std::vector<TensorInfo> tensors;
  std::vector<ParamInfo> params;
  std::vector<TensorInfo> internals;  // role internal
  std::vector<Step> steps;
  std::optional<IndexCheck> check;
  bool operator==(const Program&) const = default;
};

// A program computes one direction: one that makes gradients is a backward.
enum class Direction : std::uint8_t { forward, backward };
std::string_view to_string(Direction direction);
Direction direction_of(const Program& program);

// One run of a step: its number in the program, and the turn of its loop, from 0.
struct Run {
  std::size_t step = 0;
  std::int64_t turn = 0;
};
inline constexpr std::int64_t kMostRuns = std::int64_t{1} << 15;  // of one program

// In the order in which they run, loops unrolled.
std::vector<Run> runs_of(const Program& program);

// Graphs valid, operands complete and naming known tensors and params, dtypes agreeing; also: no
// graph tensor reaches beyond the tensor it is bound to or asks for more alignment, only outputs
// and internal tensors are written, all of each before it is read, and no more elements than there
// are: several steps may make parts of one, and of an internal tensor all parts again. Errors:
// invalid_argument naming the step or tensor.
Status validate(const Program& program);

// The largest count of the program's counting operands, 0 when there is none.
std::int64_t counting_elements(const Program& program);

// The steps of one kind, in order.
template <typename Kind>
std::vector<const Kind*> steps_of(const Program& program) {
  std::vector<const Kind*> steps;
  for (const Step& step : program.steps) {
    if (const auto* found = std::get_if<Kind>(&step)) steps.push_back(found);
  }
  return steps;
}

// How many threads a derive step's kernel needs: the elements of all outputs, unless it amends.
std::int64_t derived_elements(const Program& program, const DeriveStep& step);

// For people: tensors, params, then each step's graph.
std::string to_text(const Program& program);

// Everything that changes what the program computes or demands of its tensors, names of virtual
// values excluded: what enters a plan's signature. Values of params are not in it.
std::string canonical_text(const Program& program);

// JSON text, lossless both ways; like graph::from_json, the reading checks the form only. Errors:
// invalid_argument with the JSON path.
std::string to_json(const Program& program);
Result<Program> program_from_json(std::string_view json);

}  // namespace attn::plan
