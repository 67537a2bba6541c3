#include "runtime/cudnn/build_graph.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "runtime/cudnn/errors.h"
#include "runtime/cudnn/types.h"
#include "runtime/graph/operands.h"

namespace attn::cudnn {
namespace {

using graph::BackendGraph;
using graph::Matmul;
using graph::Node;
using graph::PagedLoad;
using graph::Pointwise;
using graph::Reduction;
using graph::Rng;
using graph::Storage;
using graph::Tensor;
using graph::Uid;

std::vector<Uid> uids_of(const Node& node) {
  std::vector<Uid> uids = graph::inputs_of(node);
  uids.push_back(graph::output_of(node));
  return uids;
}

// `offsets` belong to a ragged tensor.
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
  return builder.finalize();
}

class Builder {
 public:
  Builder(const Api& api, const BackendGraph& graph, const ProgressSink& progress)
      : api_(api), graph_(graph), progress_(progress) {}

  Result<BuiltGraph> build() {
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

  // Those that no earlier node uses.
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

  // Keeps what an operation refers to until the graph is done with.
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

  Result<BuiltGraph> finish() {
    progress_({"operation graph", -1});
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& operation : operations_) raw.push_back(operation.raw());
    auto made = DescriptorBuilder(api_, kOperationGraphDescriptor)
                    .set_all(kOperationGraphOps, raw)
                    .finalize();
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
