#include <array>
#include <utility>

#include "runtime/graph/backend_graph.h"

namespace attn::graph {
namespace {

struct PointwiseRow {
  std::string_view name;
  int inputs;
};

constexpr auto kPointwise = std::to_array<PointwiseRow>({
#define ATTN_POINTWISE(name, cudnn_mode, inputs) {#name, inputs},
#include "runtime/graph/pointwise.def"
#undef ATTN_POINTWISE
});

constexpr auto kReduceOps = std::to_array<std::string_view>({"max", "add", "amax"});
constexpr auto kBandSides = std::to_array<std::string_view>({"left", "right"});
constexpr auto kReorderings = std::to_array<std::string_view>({"none", "f8_128x4"});
constexpr auto kStorages =
    std::to_array<std::string_view>({"virtual_value", "device", "host_scalar"});

template <typename Enum, std::size_t kSize>
std::optional<Enum> parse(const std::array<std::string_view, kSize>& names, std::string_view text) {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(PointwiseMode mode) {
  return kPointwise[static_cast<std::size_t>(mode)].name;
}

std::optional<PointwiseMode> parse_pointwise_mode(std::string_view text) {
  for (std::size_t i = 0; i < kPointwise.size(); ++i) {
    if (kPointwise[i].name == text) return static_cast<PointwiseMode>(i);
  }
  return std::nullopt;
}

int input_count(PointwiseMode mode) { return kPointwise[static_cast<std::size_t>(mode)].inputs; }

std::string_view to_string(ReduceOp op) { return kReduceOps[static_cast<std::size_t>(op)]; }

std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  return parse<ReduceOp>(kReduceOps, text);
}

std::string_view to_string(BandSide side) { return kBandSides[static_cast<std::size_t>(side)]; }

std::optional<BandSide> parse_band_side(std::string_view text) {
  return parse<BandSide>(kBandSides, text);
}

std::string_view to_string(Reordering reordering) {
  return kReorderings[static_cast<std::size_t>(reordering)];
}

std::optional<Reordering> parse_reordering(std::string_view text) {
  return parse<Reordering>(kReorderings, text);
}

std::string_view to_string(Storage storage) { return kStorages[static_cast<std::size_t>(storage)]; }

std::optional<Storage> parse_storage(std::string_view text) {
  return parse<Storage>(kStorages, text);
}

SourcePos position_of(const Node& node) {
  return std::visit([](const auto& op) { return op.pos; }, node);
}

const Tensor* BackendGraph::find(Uid uid) const {
  for (const Tensor& tensor : tensors) {
    if (tensor.uid == uid) return &tensor;
  }
  return nullptr;
}

}  // namespace attn::graph
