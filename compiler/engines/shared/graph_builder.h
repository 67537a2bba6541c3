// Builds the BackendGraph of one attention, forward or backward, tensor by tensor.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/base/dtype.h"
#include "runtime/graph/backend_graph.h"
#include "runtime/plan/program.h"

namespace attn::engines {

using graph::PointwiseMode;
using graph::Uid;
using Dims4 = std::array<std::int64_t, 4>;

inline std::int64_t count_of(const Dims4& dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }

// Row-major strides.
Dims4 packed_strides(const Dims4& dims);

// Where an operand comes from, which decides where cuDNN accepts it.
enum class Place : std::uint8_t {
  element,  // virtual, one value per score: accepted anywhere
  tensor,   // device memory, broadcast over the scores: never the first input
  scalar,   // one value from the host: never the first input
};

// A value in the score position.
struct Value {
  Uid uid = 0;
  DType dtype = DType::f32;  // f32, i32 or boolean
  Place place = Place::element;
};

struct TensorTraits {
  std::int64_t alignment = 16;  // bytes
  std::optional<Uid> ragged{};
  graph::Reordering reordering = graph::Reordering::none;
};

// Per-batch sizes of a product, i32 [B,1,1,1].
struct Overrides {
  std::optional<Uid> m{}, n{}, k{};
};

// Which engines the graph is for: forward and backward engines read operands differently.
enum class Pass : std::uint8_t { forward, backward };

class GraphBuilder {
 public:
  GraphBuilder(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t columns,
               Pass pass = Pass::forward)
      : scores_{batch, heads, rows, columns}, pass_(pass) {}

  const Dims4& score_dims() const { return scores_; }
  Pass pass() const { return pass_; }

  // Virtual tensors: one value per score, one per row, or any other shape.
  Uid add_scores(DType dtype, std::string name = "");
  Uid add_rows(std::string name = "");
  Uid add_virtual(DType dtype, const Dims4& dims, const Dims4& strides, std::string name = "");
  // A device tensor bound by name. The same name may be bound more than once.
  Uid add_tensor(const std::string& name, DType dtype, const Dims4& dims, const Dims4& strides,
                 const TensorTraits& traits = {});
  // The index along `axis` of the scores in device memory: an iota filled by the runtime.
  Value iota(std::size_t axis);
  // Scalars, passed by value; equal constants share a tensor.
  Value constant(DType dtype, double value);
  Value param(const std::string& name, DType dtype);

  void matmul(Uid a, Uid b, Uid c, SourcePos pos, const Overrides& overrides = {});
  // y = x times the scales of its blocks.
  void block_dequantize(Uid x, Uid scale, Uid y, SourcePos pos);
  void paged_load(Uid container, Uid table, Uid lengths, Uid y, SourcePos pos);
  // 1 with probability `keep`, else 0, for each score.
  Value rng(double keep, Uid seed, Uid offset, SourcePos pos);
  // x with its last two dimensions swapped, as `dtype`.
  Uid transposed(Uid x, DType dtype, SourcePos pos);
  void reduce(graph::ReduceOp op, Uid x, Uid y, SourcePos pos);
  void pointwise(PointwiseMode mode, DType compute, Uid x, std::optional<Uid> b, Uid y,
                 SourcePos pos, std::optional<Uid> t = {});
  // y = mode(x[, b]), a new virtual tensor with one value per score.
  Value element(PointwiseMode mode, DType compute, DType result, Value x, std::optional<Value> b,
                SourcePos pos);
  // A new GEN_INDEX over `axis` (0 batch .. 3 column), i32. `like` gives the shape.
  Value index(std::int64_t axis, Uid like, SourcePos pos, DType compute = DType::f32);
  // The same as f32; needs no conversion.
  Value real_index(std::int64_t axis, Uid like, SourcePos pos);
  // `mask` with a new y. Only in a graph whose last node is an sdpa_forward.
  Value band_mask(graph::BandMask mask);
  void sdpa_forward(const graph::SdpaForward& node);
  // condition ? x : y. `x` must be an element; `y` an element or a scalar.
  Value select(Value condition, Value x, Value y, SourcePos pos);

  plan::CudnnStep finish() &&;

 private:
  Uid add(graph::Tensor tensor);
  Uid add_scalar(std::string name, DType dtype, plan::OperandSource source);

  Dims4 scores_;
  Pass pass_;
  plan::CudnnStep step_;
};

// Pointwise forms that lowering may emit: those of forms.def, proven on a device.
struct Form {
  graph::PointwiseMode mode;
  DType compute;
  DType result;

  auto operator<=>(const Form&) const = default;
};

std::span<const Form> proven_forms();
bool is_proven(const Form& form);

}  // namespace attn::engines
