// A program: the ordered steps over named tensors that execute one attention. Most specs need a
// single cuDNN plan; kernels generated from the IR compute what cuDNN cannot.
#pragma once

#include <array>
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

// `control`: tensors that control layout and random numbers (page tables, offsets, seeds).
// `internal`: written and read by steps, never bound. In a backward program, `saved` is o or lse of
// the forward, `cotangent` is do or dlse, and `gradient` is an output: dq, dk, dv or d_NAME. `amax`
// is an output of one element, the largest magnitude of what an 8-bit tensor holds.
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
  gradient,
  amax
};
std::string_view to_string(TensorRole role);
std::optional<TensorRole> parse_tensor_role(std::string_view text);

// A device tensor that the caller binds by name, or an internal one. Dims are in logical order (q
// and o [B,Hq,Sq,D], k and v [B,Hkv,Skv,D], lse [B,Hq,Sq], captured tensors as declared); strides
// are in elements, in any order. Internal tensors are dense row-major, aligned to 256 bytes.
struct TensorInfo {
  std::string name;
  TensorRole role = TensorRole::captured;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::int64_t alignment = 16;  // of the base address, in bytes
  // The control tensor that locates its rows, or empty. A page table: dims are those of the page
  // pool, [pages,H,page,D]. cu_seqlens (i32, [B+1]): batch b begins at row cu_seqlens[b], the batch
  // stride is unused, and memory need only hold the rows in use.
  std::string addressed_by{};
  // Strides are those of the tensor that is bound, and so is the number of pages of a pool; those
  // above are usual ones. True only if `addressed_by` locates it, or for a page table; only kernel
  // steps read it.
  bool bound_strides = false;
  // The format of rows of bytes (row_format.h), the last dimension, or empty: then they are
  // elements.
  std::string rows{};

  bool is_output() const {
    return role == TensorRole::output || role == TensorRole::stats ||
           role == TensorRole::gradient || role == TensorRole::amax;
  }
  bool operator==(const TensorInfo&) const = default;
};

inline constexpr std::int64_t kInternalAlignment = 256;

// A scalar passed at run time; its value is not part of the plan.
struct ParamInfo {
  std::string name;
  DType dtype = DType::f32;  // f32 or i32
  bool operator==(const ParamInfo&) const = default;
};

// Source of a non-virtual graph tensor's value when a step runs.
struct TensorOperand {
  std::string name;          // name of a TensorInfo
  std::int64_t offset = 0;   // in elements
  std::int64_t advance = 0;  // added to the offset after each loop iteration, in elements
  bool operator==(const TensorOperand&) const = default;
};
struct ConstantOperand {
  DType dtype = DType::f32;  // f32 or i32
  double value = 0;          // may be infinite
  bool operator==(const ConstantOperand&) const = default;
};
struct ParamOperand {
  std::string name;  // name of a ParamInfo
  bool operator==(const ParamOperand&) const = default;
};
// An iota: i32 device memory with 0, 1, .. count - 1, filled by the runtime when it loads the plan.
struct IotaOperand {
  std::int64_t count = 1;  // 1 .. 2^31
  bool operator==(const IotaOperand&) const = default;
};
using OperandSource = std::variant<TensorOperand, ConstantOperand, ParamOperand, IotaOperand>;

struct Operand {
  graph::Uid uid = 0;
  OperandSource source;
  bool operator==(const Operand&) const = default;
};

// One cuDNN execution plan. Every non-virtual tensor of the graph has exactly one operand.
struct CudnnStep {
  graph::BackendGraph graph;
  std::vector<Operand> operands;
  std::int64_t turns = 1;  // loop iterations; 1: not in a loop
  bool operator==(const CudnnStep&) const = default;
};

// A kernel generated from the IR that fills internal tensors or outputs, element by element, in one
// launch. Thread i computes element i of all outputs concatenated, in row-major order; threads past
// the last element do nothing. Arguments: a pointer to each output, then the inputs: pointers to
// tensors, params by value (float or int).
struct DeriveStep {
  // True if the outputs depend on nothing that the caller binds: they are computed when the plan is
  // loaded and live as long as the executable. Otherwise they are recomputed by each execute, in
  // the workspace.
  bool once = false;
  std::vector<std::string> outputs;      // names of internal tensors or outputs of the program
  std::vector<std::string> expressions;  // of each output, in DSL syntax; informational
  std::vector<OperandSource> inputs;     // TensorOperand (captured or internal) or ParamOperand
  std::string source;                    // CUDA C++; the kernel is kDeriveKernel
  // Nonzero: the outputs are already written, and this many threads overwrite some of their
  // elements.
  std::int64_t amends = 0;
  std::int64_t turns = 1;  // loop iterations; 1: not in a loop
  bool operator==(const DeriveStep&) const = default;
};
inline constexpr const char* kDeriveKernel = "attn_derive";
inline constexpr std::size_t kMostOutputs = 16;  // of one derive step
inline constexpr std::size_t kMostWritten = 24;  // outputs and zeroed of one kernel step

// A CUtensorMap of a tensor, for copies by the tensor memory accelerator; passed by value, made
// when addresses are bound. Elements past `dims` read as zero. Memory of a tensor that a control
// tensor locates may hold fewer rows or pages than `dims`: the kernel copies only those in use.
//
// A map of a tensor with bound strides may have `axes`: one for each stride, which then counts
// steps along that axis of the tensor; kNoAxis: it is in elements. The dimension of axis 0 is as
// long as that of the tensor that is bound: pages. kPagesAndHeads, of the last dimension: pages and
// heads together (axes 0 and 1), in steps of as many elements as both of their strides are whole
// multiples of (common_step). A page or head of these is as many of the dimension's elements as a
// StrideArgument `in_steps` says.
//
// `packed`: one map serves packed sequences, each of which ends elsewhere. A dimension of 2^30
// elements has their rows, the last but one has rows too, and the last one takes back what these
// add: its stride is 2^34 bytes less a row, so that 2^30 steps are as many rows back, since
// addresses have 64 bits (compiler/device/attn/packed_rows.cuh). The last two have 2^31 - 1.
struct TensorMapArgument {
  TensorOperand tensor;               // its base address, a multiple of 16 bytes
  std::vector<std::int64_t> dims;     // 1 to 5, innermost first, in elements
  std::vector<std::int64_t> strides;  // of all dims but the innermost, which is contiguous
  std::vector<std::int64_t> box;      // what one copy moves: 1 to 256 elements of each dim
  std::int64_t swizzle = 0;           // bytes: 0, 32, 64 or 128
  std::int64_t promotion = 256;       // bytes that a read brings to the L2 cache: 128 or 256
  std::vector<std::int64_t> axes{};
  bool packed = false;
  static constexpr std::int64_t kNoAxis = -1, kPagesAndHeads = -2;
  static constexpr std::int64_t kMostSteps = 0x7fffffff;  // of kPagesAndHeads: coordinates are i32
  static constexpr std::int64_t kPackedSteps = std::int64_t{1} << 30;
  static constexpr std::int64_t kPackedMost = 2 * kPackedSteps - 1;
  static constexpr std::int64_t kPackedBytes = std::int64_t{1} << 34;  // above a row's stride
  bool operator==(const TensorMapArgument&) const = default;
};

// A stride of a tensor with bound strides, in elements or, of axis 0 or 1, `in_steps` of a
// dimension of kPagesAndHeads: 64 bits by value.
struct StrideArgument {
  std::string tensor;
  std::int64_t axis = 0;
  bool in_steps = false;
  bool operator==(const StrideArgument&) const = default;
};

// A tensor's address, a scalar by value (float or int), a tensor map, or a stride.
using KernelArgument =
    std::variant<TensorOperand, ParamOperand, ConstantOperand, TensorMapArgument, StrideArgument>;

using Extents = std::array<std::int64_t, 3>;  // x, y, z

struct Launch {
  std::string kernel;         // its extern "C" name in the image
  Extents grid = {1, 1, 1};   // in blocks
  Extents block = {1, 1, 1};  // in threads
  Extents cluster = {1, 1, 1};
  std::int64_t shared_bytes = 0;  // dynamic shared memory per block
  // It may begin while the launch before it in the step still runs. Its kernel waits by itself,
  // before it reads or writes what that one writes.
  bool overlaps = false;
  std::vector<KernelArgument> arguments{};
  bool operator==(const Launch&) const = default;
};

// Blocks of all tiles of one head, or of every list where lists differ by batch or head.
struct BlockCounts {
  std::int64_t lists = 1;
  std::int64_t full = 0;     // no mask is evaluated
  std::int64_t partial = 0;  // masks are evaluated
  std::int64_t skipped = 0;  // of as many as cover all scores

  std::int64_t all() const { return full + partial + skipped; }
  bool operator==(const BlockCounts&) const = default;
};

// What an attention kernel is made of; informational. A block of threads holds a tile, and streams
// blocks of the other side by: tiles of a forward are of queries, and blocks of keys; those of a
// backward the other way around.
struct KernelFacts {
  bool backward = false;
  std::int64_t launch = 0;        // of the step
  std::int64_t tile = 0;          // rows of a head, or keys
  std::int64_t block = 0;         // keys, or rows
  std::int64_t heads = 1;         // that share a tile
  std::int64_t depth = 0;         // of q and k, as in shared memory
  std::int64_t width = 0;         // of v
  std::int64_t groups = 0;        // warp groups that compute
  std::int64_t stages = 0;        // of what is streamed
  std::int64_t query_stages = 0;  // of a forward
  std::int64_t table_stages = 0;  // of a captured table that scores read
  std::int64_t parts = 1;         // of a tile's keys, that different blocks of threads compute
  std::int64_t items = 0;         // tiles of all batches and heads, times parts
  // Parts of all divided tiles of a backward; if the GPU makes the lists, at most.
  std::int64_t divided = 0;
  std::int64_t patch_width = 0, patch_height = 0;  // of a grid, if the tile is a rectangle of it
  bool has_lengths = false;                        // which cut the lists at run time
  bool gathers = false;       // keys or values in small pages are copied row by row
  bool makes_lists = false;   // a kernel before does, at every execute
  bool has_band = false;      // there are none: it computes the first and the last block of a tile
  bool has_schedule = false;  // which divides the tiles by their lengths
  bool lists_of_batch = false, lists_of_head = false;  // which differ by these
  std::optional<BlockCounts> blocks{};                 // absent if inputs decide

  bool operator==(const KernelFacts&) const = default;
};

// What the first launch of a step makes: which tiles which blocks of threads compute. It reads the
// lengths of a batch, and writes `tensor` alone, so that a caller may make it once for many
// executes with these lengths, in memory of its own (runtime/execute/schedule.h).
struct Schedule {
  std::string tensor;           // internal, i32 [.. + slots * slot_words]
  std::string options;          // internal, i32, zeroed or made at load: a ScheduleOptions first
  std::string parts;            // internal, f32 [slots * slot_elements]: results of parts of tiles
  std::int64_t slots = 0;       // parts of divided tiles that both have room for
  std::int64_t slot_words = 0;  // elements of `tensor` for a slot, behind all others
  std::int64_t slot_elements = 0;  // elements of `parts` for a slot
  std::int64_t sequences = 0;      // at most, B
  std::int64_t units = 0;          // tiles of the same rows, of different heads
  std::int64_t tile_rows = 0;      // rows of a sequence that a tile has
  std::int64_t tile_keys = 0;      // of a block; parts begin at multiples of it
  // Whether keys that all sequences begin with may be read once, and why not: words that follow
  // "since". Plans of earlier versions have none.
  bool shares_keys = false;
  std::string unshared{};

  bool operator==(const Schedule&) const = default;
};
inline constexpr std::int64_t kMostSlots = 65534;  // kernels have 16 bits for them

// Launches of kernels of one image, in order. Each run of the step, also each iteration of a loop,
// first fills `zeroed` with zero bytes.
struct KernelStep {
  std::vector<std::string> outputs;  // internal tensors or outputs that it writes completely
  std::vector<std::string> zeroed;   // internal tensors: counters, sums
  std::vector<Launch> launches;
  std::string source;                  // CUDA C++
  std::int64_t turns = 1;              // loop iterations; 1: not in a loop
  std::optional<KernelFacts> facts{};  // of its attention kernel, if it has one
  std::optional<Schedule> schedule{};  // that its first launch makes
  bool operator==(const KernelStep&) const = default;
};
inline constexpr std::size_t kMostLaunches = 64;         // of one kernel step
inline constexpr std::size_t kMostArgumentBytes = 4096;  // of one launch
inline constexpr std::int64_t kTensorMapBytes = 128;
std::int64_t bytes_of(const KernelArgument& argument);  // as a kernel parameter
// The map, without axes, of a tensor with these dims and strides.
TensorMapArgument resolved(const TensorMapArgument& map, const TensorInfo& tensor);
// The largest step of which strides of axes 0 and 1 are whole multiples, in elements; axes of one
// element have none. Strides are above 0.
std::int64_t common_step(const TensorInfo& tensor);
// How many steps it is to the last page and head, and one more; nullopt beyond 63 bits.
std::optional<std::int64_t> steps_of_pages(const TensorInfo& tensor);
std::int64_t value_of(const StrideArgument& stride, const TensorInfo& tensor);
// The last stride of a packed map whose rows are so far apart, in elements of that width.
std::int64_t stride_back(std::int64_t row, std::int64_t width);
// Whether a launch has that tensor as an argument.
bool names(const KernelStep& step, const std::string& tensor);
bool names(const Launch& launch, const std::string& tensor);
// The tensor of an argument, or null, also for a stride.
const TensorOperand* tensor_of(const KernelArgument& argument);

// Adjacent steps with the same `turns`, above 1, form a loop of that many iterations, each running
// the steps in order. Operands advance after each iteration. A loop may write only internal
// tensors, and overwrites in each iteration what does not advance.
using Step = std::variant<CudnnStep, DeriveStep, KernelStep>;
std::int64_t turns_of(const Step& step);

// Two kernels that run at binding and check for elements of derived tensors without a value (a
// gather index out of range, an integer division by 0) that a score depends on. Arguments: a
// pointer to a 64-bit word with all bits set, then the inputs, as for a derive step.
//
// kQuickCheckKernel, with `quick` threads, sets the word to 0 if any element has no value, even one
// that no score uses. kExactCheckKernel, with one thread for each element of `scores`, sets the
// word to the minimum of 65536 i + n over the scores i (row-major) that depend on faults[n - 1].
struct IndexCheck {
  struct Fault {
    std::string expression;  // in DSL syntax
    std::string what;        // "an index is outside the tensor"
    bool operator==(const Fault&) const = default;
  };
  std::vector<Fault> faults;
  std::vector<OperandSource> inputs;
  std::int64_t quick = 0;
  std::vector<std::int64_t> scores;  // [B, Hq, Sq, Skv], 1 for dimensions that do not matter
  std::string source;                // CUDA C++
  bool operator==(const IndexCheck&) const = default;
};
inline constexpr const char* kQuickCheckKernel = "attn_check_quickly";
inline constexpr const char* kExactCheckKernel = "attn_check_exactly";
inline constexpr std::int64_t kMostChecked = std::int64_t{1} << 38;  // threads of either kernel
inline constexpr std::size_t kMostFaults = 65535;

// The launches of a check. The pointer to the word, which is not the program's, comes before their
// arguments.
Launch quick_launch(const IndexCheck& check);
Launch exact_launch(const IndexCheck& check);

struct Program {
  std::vector<TensorInfo> tensors;
  std::vector<ParamInfo> params;
  std::vector<TensorInfo> internals;  // role internal
  std::vector<Step> steps;
  std::optional<IndexCheck> check;
  bool operator==(const Program&) const = default;
};

// A program computes one direction: backward if it has gradients.
enum class Direction : std::uint8_t { forward, backward };
std::string_view to_string(Direction direction);
Direction direction_of(const Program& program);

// One run of a step: its index in the program, and the iteration of its loop, from 0.
struct Run {
  std::size_t step = 0;
  std::int64_t turn = 0;
};
inline constexpr std::int64_t kMostRuns = std::int64_t{1} << 15;  // per program

// The step that has a schedule, or null.
const KernelStep* scheduled_step(const Program& program);
// Whether a launch takes strides of that tensor in steps. It then has a map of kPagesAndHeads of
// it.
bool takes_steps(const Program& program, const std::string& tensor);

// All runs in execution order, loops unrolled.
std::vector<Run> runs_of(const Program& program);

// Checks that graphs are valid, operands are complete and name known tensors and params, and dtypes
// agree; that no graph tensor exceeds its bound tensor's size or alignment; that only outputs and
// internal tensors are written, and completely before they are read; and that no element is written
// twice, except that internal tensors may be completely rewritten. Several steps may each write a
// part of a tensor. Errors: invalid_argument, naming the step or tensor.
Status validate(const Program& program);

// The largest count of the program's IotaOperands; 0 if there are none.
std::int64_t iota_elements(const Program& program);

// All steps of one kind, in order.
template <typename Kind>
std::vector<const Kind*> steps_of(const Program& program) {
  std::vector<const Kind*> steps;
  for (const Step& step : program.steps) {
    if (const auto* found = std::get_if<Kind>(&step)) steps.push_back(found);
  }
  return steps;
}

// Threads that a derive step's kernel needs: the elements of all outputs, or `amends`.
std::int64_t derived_elements(const Program& program, const DeriveStep& step);

// The sources of a plan's kernels, in the order of Plan::kernels. The text is the program's.
struct KernelSource {
  const std::string* text = nullptr;
  bool general = false;  // of a kernel step: it may use what only this architecture has
};
std::vector<KernelSource> sources_of(const Program& program);

// What runs for a step that is not cuDNN's. For a derive step it is one launch with a thread per
// element. `program` has its outputs.
KernelStep launched(const Program& program, const Step& step);

// Canonical text for the plan's signature: everything that changes what the program computes or
// requires of its tensors. Excludes names of virtual values, and values of params.
std::string canonical_text(const Program& program);

// JSON text, lossless in both directions. Like graph::from_json, reading checks only the form.
// Errors: invalid_argument with the JSON path.
std::string to_json(const Program& program);
Result<Program> program_from_json(std::string_view json);

}  // namespace attn::plan
