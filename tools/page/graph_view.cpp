#include "tools/page/graph_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "runtime/graph/operands.h"
#include "runtime/plan/step_tensors.h"
#include "tools/page/layers.h"
#include "tools/words.h"

namespace attn::tools::page {
namespace {

using graph::Uid;

constexpr double kHeight = 40;
constexpr double kLetter = 6.7;  // width of the letters of names, and less of the others

struct Box {
  std::string name, type, title;
  const char* kind = "node";  // "tensor": memory that is read; "output": also written to memory
  std::optional<std::size_t> clause{};
};

std::string tensor_name(const graph::Tensor& tensor) {
  return tensor.name.empty() ? fmt::format("%{}", tensor.uid) : shown(tensor.name);
}

std::string type_of(const graph::Tensor& tensor) {
  return fmt::format("{}{}", to_string(tensor.dtype), dims_text(tensor.dims));
}

class Boxes {
 public:
  Boxes(const plan::CudnnStep& step, const std::vector<std::size_t>& clauses) {
    const graph::BackendGraph& graph = step.graph;
    for (const plan::Operand& operand : step.operands) operands_.emplace(operand.uid, &operand);
    for (const graph::Tensor& tensor : graph.tensors) tensors_.emplace(tensor.uid, &tensor);
    const std::set<Uid> written = graph::written_by(graph);
    for (const graph::Tensor& tensor : graph.tensors) {
      if (tensor.storage != graph::Storage::device || written.contains(tensor.uid)) continue;
      add({name_of(tensor), type_of(tensor), "read from memory", "tensor"}, tensor.uid);
    }
    if (const graph::SdpaForward* sdpa = graph::sdpa_of(graph); sdpa != nullptr && sdpa->score) {
      add_score(*sdpa, clauses.back());
    }
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) add(graph.nodes[i], clauses.at(i));
  }

  Json view() const {
    std::vector<Size> sizes;
    for (const Box& box : boxes_) sizes.push_back({width_of(box), kHeight});
    const Layers layers = layers_of(sizes, edges_);
    Json nodes = Json::array(), edges = Json::array();
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      const Box& box = boxes_[i];
      nodes.push_back({{"left", rounded(layers.nodes[i].x - sizes[i].width / 2)},
                       {"top", rounded(layers.nodes[i].y - kHeight / 2)},
                       {"width", rounded(sizes[i].width)},
                       {"height", kHeight},
                       {"x", rounded(layers.nodes[i].x)},
                       {"name_y", rounded(layers.nodes[i].y - 3)},
                       {"type_y", rounded(layers.nodes[i].y + 12)},
                       {"name", box.name},
                       {"type", box.type},
                       {"what", box.title},
                       {"clause", clause_text(box)},
                       {"kind", box.kind}});
    }
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      edges.push_back({{"path", path_of(layers.edges[i])}});
    }
    return {{"width", rounded(layers.size.width + 2)},
            {"height", rounded(layers.size.height + 2)},
            {"nodes", nodes},
            {"edges", edges}};
  }

 private:
  static double rounded(double x) { return static_cast<double>(std::lround(x * 10)) / 10; }

  static Json clause_text(const Box& box) {
    return box.clause ? Json(fmt::format("{}", *box.clause)) : Json();
  }

  static double width_of(const Box& box) {
    const auto name = static_cast<double>(box.name.size());
    const auto type = static_cast<double>(box.type.size());
    return std::max({90.0, kLetter * name + 20, 0.88 * kLetter * type + 20});
  }

  // Curves between layers, straight lines through them.
  static std::string path_of(const std::vector<Point>& points) {
    std::string path = fmt::format("M{:.1f} {:.1f}", points.front().x, points.front().y);
    for (std::size_t i = 1; i < points.size(); ++i) {
      const auto [x, y] = points[i];
      const double middle = (points[i - 1].y + y) / 2;
      if (points[i - 1].x == x)
        path += fmt::format("V{:.1f}", y);
      else
        path += fmt::format("C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", points[i - 1].x, middle,
                            x, middle, x, y);
    }
    return path;
  }

  // The name of what the caller binds, or the value of a constant.
  std::string name_of(const graph::Tensor& tensor) const {
    const auto found = operands_.find(tensor.uid);
    if (found == operands_.end()) return tensor_name(tensor);
    const plan::OperandSource& source = found->second->source;
    if (const std::string* name = plan::name_of(source)) return shown(*name);
    if (const auto* of = std::get_if<plan::ConstantOperand>(&source)) {
      return fmt::format("{:g}", of->value);
    }
    return "iota";
  }

  void add(Box box, Uid output) {
    made_by_[output] = boxes_.size();
    boxes_.push_back(std::move(box));
  }

  // What the nodes before an sdpa node read of it.
  void add_score(const graph::SdpaForward& sdpa, std::size_t clause) {
    for (const Uid uid : {sdpa.q, sdpa.k}) {
      if (made_by_.contains(uid)) edges_.emplace_back(made_by_.at(uid), boxes_.size());
    }
    const graph::Tensor& score = *tensors_.at(*sdpa.score);
    add({"scores of sdpa", type_of(score), tensor_name(score), "node", clause}, score.uid);
  }

  void add(const graph::Node& node, std::size_t clause) {
    const graph::Tensor& output = *tensors_.at(graph::output_of(node));
    const bool stored = output.storage == graph::Storage::device;
    std::string name = graph::mnemonic_of(node);
    std::string scalars;
    std::vector<Uid> read = graph::inputs_of(node);
    for (const Uid uid : read) {
      if (const auto found = made_by_.find(uid); found != made_by_.end()) {
        edges_.emplace_back(found->second, boxes_.size());
      } else if (tensors_.at(uid)->storage == graph::Storage::host_scalar) {
        scalars += fmt::format("{}{}", scalars.empty() ? "" : ", ", name_of(*tensors_.at(uid)));
      }
    }
    if (!scalars.empty()) name += fmt::format(" ({})", scalars);
    if (stored) name += " \u2192 " + name_of(output);
    const std::string title =
        output.name.empty() ? type_of(output) : tensor_name(output) + ": " + type_of(output);
    for (const Uid uid : graph::outputs_of(node)) made_by_[uid] = boxes_.size();
    boxes_.push_back({std::move(name), type_of(output), title, stored ? "output" : "node", clause});
  }

  std::map<Uid, const plan::Operand*> operands_;
  std::map<Uid, const graph::Tensor*> tensors_;
  std::map<Uid, std::size_t> made_by_;
  std::vector<Box> boxes_;
  std::vector<std::pair<std::size_t, std::size_t>> edges_;
};

}  // namespace

Json graph_view(const plan::CudnnStep& step, const std::vector<std::size_t>& clauses) {
  if (step.graph.nodes.size() > kMostDrawnNodes) return nullptr;
  return Boxes(step, clauses).view();
}

}  // namespace attn::tools::page
