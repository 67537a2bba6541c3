#include "runtime/cudnn/build_graph.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "runtime/base/check.h"
#include "runtime/cudnn/errors.h"
#include "runtime/graph/operands.h"

namespace attn::cudnn {
namespace {

using graph::BackendGraph;
using graph::BandMask;
using graph::BandSide;
using graph::BlockDequantize;
using graph::Matmul;
using graph::Node;
using graph::PagedLoad;
using graph::Pointwise;
using graph::Reduction;
using graph::Reshape;
using graph::Rng;
using graph::SdpaForward;
using graph::Storage;
using graph::Tensor;
using graph::Uid;

cudnnDataType_t to_cudnn(DType type) {
  switch (type) {
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::i8: return CUDNN_DATA_INT8;
    case DType::u8: return CUDNN_DATA_UINT8;
    case DType::i32: return CUDNN_DATA_INT32;
    case DType::i64: return CUDNN_DATA_INT64;
    case DType::boolean: return CUDNN_DATA_BOOLEAN;
    case DType::e4m3: return CUDNN_DATA_FP8_E4M3;
    case DType::e5m2: return CUDNN_DATA_FP8_E5M2;
    case DType::e8m0: return CUDNN_DATA_FP8_E8M0;
  }
  check_failed(__FILE__, __LINE__, "type", "every DType must have a cuDNN data type");
}

cudnnPointwiseMode_t to_cudnn(graph::PointwiseMode mode) {
  static constexpr cudnnPointwiseMode_t kModes[] = {
#define ATTN_POINTWISE(name, cudnn_mode, inputs) cudnn_mode,
#include "runtime/graph/pointwise.def"
#undef ATTN_POINTWISE
  };
  return kModes[static_cast<std::size_t>(mode)];
}

cudnnReduceTensorOp_t to_cudnn(graph::ReduceOp op) {
  switch (op) {
    case graph::ReduceOp::max: return CUDNN_REDUCE_TENSOR_MAX;
    case graph::ReduceOp::add: return CUDNN_REDUCE_TENSOR_ADD;
    case graph::ReduceOp::amax: return CUDNN_REDUCE_TENSOR_AMAX;
  }
  check_failed(__FILE__, __LINE__, "op", "every ReduceOp must have a cuDNN operator");
}

std::vector<Uid> uids_of(const Node& node) {
  std::vector<Uid> uids = graph::inputs_of(node);
  for (const Uid uid : graph::outputs_of(node)) uids.push_back(uid);
  return uids;
}

// `offsets` are those of a ragged tensor, or null.
Result<Descriptor> make_tensor(const Api& api, const Tensor& tensor, const Descriptor* offsets) {
  DescriptorBuilder builder(api, kTensorDescriptor);
  builder.set(kTensorUniqueId, tensor.uid)
      .set(kTensorDataType, to_cudnn(tensor.dtype))
      .set_all(kTensorDimensions, tensor.dims)
      .set_all(kTensorStrides, tensor.strides)
      .set(kTensorByteAlignment, tensor.alignment);
  if (tensor.storage == Storage::virtual_value) builder.set(kTensorIsVirtual, true);
  if (tensor.storage == Storage::host_scalar) builder.set(kTensorIsByValue, true);
  if (offsets != nullptr) builder.set(kTensorRaggedOffset, *offsets);
  if (tensor.reordering == graph::Reordering::f8_128x4) {
    builder.set(kTensorReordering, CUDNN_TENSOR_REORDERING_F8_128x4);
  }
  return builder.finalize();
}

class Builder {
 public:
  Builder(const Api& api, const BackendGraph& graph, const ProgressSink& progress)
      : api_(api), graph_(graph), progress_(progress) {}

  Result<BuiltGraph> build() {
    ATTN_RETURN_IF_ERROR(add_lent_score());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      ATTN_RETURN_IF_ERROR(add_tensors(static_cast<int>(i)));
    }
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      ATTN_RETURN_IF_ERROR(add_operation(static_cast<int>(i)));
    }
    return finish();
  }

 private:
  const Node& node(int index) const { return graph_.nodes[static_cast<std::size_t>(index)]; }
  const Descriptor& tensor(Uid uid) const { return tensors_.at(uid); }

  // Adds the tensors of the node that no earlier node uses.
  Status add_tensors(int index) {
    for (const Uid uid : uids_of(node(index))) ATTN_RETURN_IF_ERROR(add_tensor(index, uid));
    return Status();
  }

  Status add_tensor(int index, Uid uid) {
    if (tensors_.contains(uid)) return {};
    const Tensor* tensor = graph_.find(uid);
    if (tensor == nullptr) {
      return Status(
          ErrorCode::internal,
          fmt::format("node {} uses tensor {}, which the graph does not have", index, uid));
    }
    if (tensor->ragged) ATTN_RETURN_IF_ERROR(add_tensor(index, *tensor->ragged));
    progress_({"tensor", index});
    Result<Descriptor> made =
        make_tensor(api_, *tensor, tensor->ragged ? &this->tensor(*tensor->ragged) : nullptr);
    if (!made.ok()) return refused(made.error(), "tensor", index, fmt::format("tensor {}", uid));
    tensors_.emplace(uid, std::move(made).value());
    return {};
  }

  Status add_operation(int index) {
    progress_({"operation", index});
    Result<Descriptor> made =
        std::visit([this](const auto& operation) { return make(operation); }, node(index));
    if (!made.ok()) return refused(made.error(), "operation", index, "operation");
    operations_.push_back(std::move(made).value());
    return Status();
  }

  Status refused(const Error& error, const std::string& stage, int index,
                 const std::string& what) const {
    return with_place(
        error, stage, index,
        fmt::format("{} of node {} ({})", what, index, graph::mnemonic_of(node(index))));
  }

  // Keeps what an operation refers to until the graph is no longer needed.
  const Descriptor* keep(Result<Descriptor>& settings) {
    settings_.push_back(std::move(settings).value());
    return &settings_.back();
  }

  Result<Descriptor> make(const Matmul& matmul) {
    auto settings = DescriptorBuilder(api_, kMatmulDescriptor)
                        .set(kMatmulCompType, to_cudnn(matmul.compute))
                        .finalize();
    if (!settings.ok()) return settings.error();
    DescriptorBuilder operation(api_, kMatmulOperation);
    operation.set(kMatmulA, tensor(matmul.a))
        .set(kMatmulB, tensor(matmul.b))
        .set(kMatmulC, tensor(matmul.c))
        .set(kMatmulSettings, *keep(settings));
    if (matmul.m) operation.set(kMatmulM, tensor(*matmul.m));
    if (matmul.n) operation.set(kMatmulN, tensor(*matmul.n));
    if (matmul.k) operation.set(kMatmulK, tensor(*matmul.k));
    return operation.finalize();
  }

  Result<Descriptor> make(const Rng& rng) {
    auto settings = DescriptorBuilder(api_, kRngDescriptor)
                        .set(kRngDistribution, CUDNN_RNG_DISTRIBUTION_BERNOULLI)
                        .set(kRngProbability, rng.keep)
                        .finalize();
    if (!settings.ok()) return settings.error();
    return DescriptorBuilder(api_, kRngOperation)
        .set(kRngY, tensor(rng.y))
        .set(kRngSettings, *keep(settings))
        .set(kRngSeed, tensor(rng.seed))
        .set(kRngOffset, tensor(rng.offset))
        .finalize();
  }

  Result<Descriptor> make(const PagedLoad& load) {
    return DescriptorBuilder(api_, kPagedLoadOperation)
        .set(kPagedLoadContainer, tensor(load.container))
        .set(kPagedLoadTable, tensor(load.table))
        .set(kPagedLoadLengths, tensor(load.lengths))
        .set(kPagedLoadY, tensor(load.y))
        .finalize();
  }

  Result<Descriptor> make(const Reshape& reshape) {
    return DescriptorBuilder(api_, kReshapeOperation)
        .set(kReshapeX, tensor(reshape.x))
        .set(kReshapeY, tensor(reshape.y))
        .finalize();
  }

  // Blocks have one row.
  Result<Descriptor> make(const BlockDequantize& blocks) {
    const std::int32_t size[] = {1, static_cast<std::int32_t>(blocks.size)};
    return DescriptorBuilder(api_, kBlockDequantizeOperation)
        .set(kBlockDequantizeX, tensor(blocks.x))
        .set(kBlockDequantizeScale, tensor(blocks.scale))
        .set(kBlockDequantizeY, tensor(blocks.y))
        .set(kBlockDequantizeMathPrec, CUDNN_DATA_FLOAT)
        .set_all(kBlockDequantizeSize, size)
        .finalize();
  }

  Result<Descriptor> make(const Pointwise& pointwise) {
    DescriptorBuilder mode(api_, kPointwiseDescriptor);
    mode.set(kPointwiseMode, to_cudnn(pointwise.mode))
        .set(kPointwiseMathPrec, to_cudnn(pointwise.compute));
    if (pointwise.axis) mode.set(kPointwiseAxis, *pointwise.axis);
    auto settings = mode.finalize();
    if (!settings.ok()) return settings.error();
    DescriptorBuilder operation(api_, kPointwiseOperation);
    operation.set(kPointwiseSettings, *keep(settings))
        .set(kPointwiseX, tensor(pointwise.x))
        .set(kPointwiseY, tensor(pointwise.y))
        .set(kPointwiseAlpha1, 1.0F)
        .set(kPointwiseAlpha2, 1.0F);
    if (pointwise.b) operation.set(kPointwiseB, tensor(*pointwise.b));
    if (pointwise.t) operation.set(kPointwiseT, tensor(*pointwise.t));
    return operation.finalize();
  }

  Result<Descriptor> make(const Reduction& reduction) {
    auto settings = DescriptorBuilder(api_, kReductionDescriptor)
                        .set(kReductionCompType, to_cudnn(reduction.compute))
                        .set(kReductionOperator, to_cudnn(reduction.op))
                        .set(kReductionIsDeterministic, false)
                        .finalize();
    if (!settings.ok()) return settings.error();
    return DescriptorBuilder(api_, kReductionOperation)
        .set(kReductionX, tensor(reduction.x))
        .set(kReductionY, tensor(reduction.y))
        .set(kReductionSettings, *keep(settings))
        .finalize();
  }

  Result<Descriptor> make(const BandMask& band) {
    const bool right = band.side == BandSide::right;
    DescriptorBuilder operation(api_, kBandMaskOperation);
    operation.set(kBandMaskX, tensor(band.x))
        .set(kBandMaskFill, tensor(band.fill))
        .set(kBandMaskY, tensor(band.y))
        .set(kBandMaskComparison, right ? CUDNN_POINTWISE_CMP_GE : CUDNN_POINTWISE_CMP_GT);
    if (band.bound) operation.set(right ? kBandMaskRight : kBandMaskLeft, tensor(*band.bound));
    if (band.lengths_q) operation.set(kBandMaskLengthsQ, tensor(*band.lengths_q));
    if (band.lengths_kv) operation.set(kBandMaskLengthsKv, tensor(*band.lengths_kv));
    return operation.finalize();
  }

  Result<Descriptor> make(const SdpaForward& sdpa) {
    DescriptorBuilder operation(api_, kSdpaForwardOperation);
    operation.set(kSdpaQ, tensor(sdpa.q))
        .set(kSdpaK, tensor(sdpa.k))
        .set(kSdpaV, tensor(sdpa.v))
        .set(kSdpaO, tensor(sdpa.o));
#define ATTN_SDPA_INPUT(name, attribute) \
  if (sdpa.name) operation.set(attribute, tensor(*sdpa.name));
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
    if (sdpa.dropout > 0) operation.set(kSdpaDropout, static_cast<float>(sdpa.dropout));
    if (sdpa.stats && !sdpa.sink) operation.set(kSdpaStats, tensor(*sdpa.stats));
    if (sdpa.sink) ATTN_RETURN_IF_ERROR(set_softmax(sdpa, operation));
    if (sdpa.score) ATTN_RETURN_IF_ERROR(set_score_graph(sdpa, operation));
    return operation.finalize();
  }

  // The preceding operations become a separate graph that the operation refers to.
  Status set_score_graph(const SdpaForward& sdpa, DescriptorBuilder& operation) {
    ATTN_ASSIGN(Descriptor graph, graph_of(operations_));
    for (Descriptor& part : operations_) settings_.push_back(std::move(part));
    operations_.clear();
    settings_.push_back(std::move(graph));
    operation.set(kSdpaScoreGraph, settings_.back())
        .set(kSdpaScoreIn, *sdpa.score)
        .set(kSdpaScoreOut, *sdpa.modified);
    return {};
  }

  // With a sink, the softmax and its statistics need a separate descriptor.
  Status set_softmax(const SdpaForward& sdpa, DescriptorBuilder& operation) {
    ATTN_ASSIGN(Descriptor scores, make_tensor(api_, scores_of(sdpa, 1), nullptr));
    ATTN_ASSIGN(Descriptor weights, make_tensor(api_, scores_of(sdpa, 2), nullptr));
    DescriptorBuilder softmax(api_, kSoftmaxOperation);
    softmax.set(kSoftmaxX, scores).set(kSoftmaxY, weights).set(kSoftmaxSink, tensor(*sdpa.sink));
    if (sdpa.stats) softmax.set(kSoftmaxStats, tensor(*sdpa.stats));
    ATTN_ASSIGN(Descriptor made, softmax.finalize());
    for (Descriptor* part : {&scores, &weights, &made}) settings_.push_back(std::move(*part));
    operation.set(kSdpaSoftmax, settings_.back());
    return {};
  }

  // A virtual tensor of score shape, with the uid `number` after the graph's last.
  Tensor scores_of(const SdpaForward& sdpa, Uid number) const {
    const std::vector<std::int64_t>& q = graph_.find(sdpa.q)->dims;
    const std::int64_t pages = sdpa.table_k ? graph_.find(*sdpa.table_k)->dims[2] : 1;
    const std::int64_t columns = graph_.find(sdpa.k)->dims[2] * pages;
    Tensor tensor;
    tensor.uid = graph_.tensors.back().uid + number;
    tensor.dims = {q[0], q[1], q[2], columns};
    tensor.strides = {q[1] * q[2] * columns, q[2] * columns, columns, 1};
    return tensor;
  }

  Result<Descriptor> graph_of(const std::vector<Descriptor>& operations) const {
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& operation : operations) raw.push_back(operation.raw());
    return DescriptorBuilder(api_, kOperationGraphDescriptor)
        .set_all(kOperationGraphOps, raw)
        .finalize();
  }

  // Adds the score tensor of an SdpaForward, which is not the output of a node.
  Status add_lent_score() {
    const SdpaForward* sdpa = graph::sdpa_of(graph_);
    return sdpa != nullptr && sdpa->score ? add_tensor(0, *sdpa->score) : Status();
  }

  Result<BuiltGraph> finish() {
    progress_({"operation graph", -1});
    auto made = graph_of(operations_);
    if (!made.ok()) return with_place(made.error(), "operation graph", -1, "operation graph");
    BuiltGraph built{std::move(operations_), std::move(made).value()};
    for (Descriptor& part : settings_) built.parts.push_back(std::move(part));
    for (auto& [uid, part] : tensors_) built.parts.push_back(std::move(part));
    return built;
  }

  const Api& api_;
  const BackendGraph& graph_;
  const ProgressSink& progress_;
  std::map<Uid, Descriptor> tensors_;
  std::vector<Descriptor> settings_;
  std::vector<Descriptor> operations_;
};

}  // namespace

Result<BuiltGraph> build_graph(const Api& api, const BackendGraph& graph,
                               const ProgressSink& progress) {
  return Builder(api, graph, progress).build();
}

}  // namespace attn::cudnn
