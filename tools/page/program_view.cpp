#include "tools/page/program_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/graph/operands.h"
#include "runtime/io/host_tensor.h"
#include "runtime/plan/program.h"
#include "runtime/plan/step_tensors.h"
#include "tools/page/layers.h"
#include "tools/report.h"
#include "tools/strategies.h"
#include "tools/words.h"

namespace attn::tools::page {
namespace {

using graph::Uid;

// More nodes than this are only listed.
inline constexpr std::size_t kMostDrawnNodes = 160;

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

// {"width", "height", "nodes": [{"left", "top", "width", "height", "x", "name_y", "type_y", "name",
// "type", "what", "clause", "kind"}], "edges": [{"path"}]}: first the memory that is read, then the
// nodes. `clauses` has the clause of each node, an index. Constants and params are written into the
// nodes that read them. Null for a graph of too many nodes.
Json graph_view(const plan::CudnnStep& step, const std::vector<std::size_t>& clauses) {
  if (step.graph.nodes.size() > kMostDrawnNodes) return nullptr;
  return Boxes(step, clauses).view();
}

constexpr std::size_t kMostSource = 200'000;  // bytes of one source, and of all
constexpr std::size_t kMostGraphs = 12;       // drawn; further ones are only listed

std::string milliseconds_text(double time) {
  return time < 0.1 ? fmt::format("{:.4f}", time) : fmt::format("{:.3f}", time);
}

Json choice_view(const driver::Compiled& compiled) {
  const std::vector<Considered> all = considered(compiled);
  double longest = 0;
  for (const Considered& each : all) {
    longest = std::max({longest, each.predicted_ms, each.measured_ms.value_or(0)});
  }
  Json list = Json::array();
  for (const Considered& each : all) {
    Json json = {{"strategy", shown(each.strategy)},
                 {"engine", each.engine},
                 {"what", each.what},
                 {"chosen", each.chosen},
                 {"predicted", nullptr},
                 {"measured", nullptr},
                 {"bar", nullptr},
                 {"reason", nullptr}};
    if (each.predicted_ms > 0) json["predicted"] = milliseconds_text(each.predicted_ms);
    if (each.measured_ms) json["measured"] = milliseconds_text(*each.measured_ms);
    const double time = each.measured_ms.value_or(each.predicted_ms);
    if (time > 0) json["bar"] = fmt::format("{:.1f}", std::max(100 * time / longest, 0.5));
    if (!each.refused.empty()) json["reason"] = shown_lines(each.refused);
    list.push_back(std::move(json));
  }
  return list;
}

std::int64_t size_of_tensor(const plan::TensorInfo& tensor) {
  return io::element_count(tensor.dims) * static_cast<std::int64_t>(size_of(tensor.dtype));
}

Json tensors_view(const std::vector<plan::TensorInfo>& tensors) {
  Json list = Json::array();
  for (const plan::TensorInfo& tensor : tensors) {
    list.push_back({{"name", shown(tensor.name)},
                    {"role", to_string(tensor.role)},
                    {"dtype", to_string(tensor.dtype)},
                    {"dims", dims_text(tensor.dims)},
                    {"strides", dims_text(tensor.strides)},
                    {"size", bytes_text(size_of_tensor(tensor))},
                    {"addressed_by", shown(tensor.addressed_by)}});
  }
  return list;
}

// Text of extents without ones at the end.
std::string extents_text(const plan::Extents& extents) {
  std::string text = fmt::format("{}", extents[0]);
  if (extents[1] != 1 || extents[2] != 1) text += fmt::format(" \u00d7 {}", extents[1]);
  if (extents[2] != 1) text += fmt::format(" \u00d7 {}", extents[2]);
  return text;
}

std::string argument_text(const plan::KernelArgument& argument) {
  if (const plan::TensorOperand* tensor = plan::tensor_of(argument)) {
    const bool is_map = std::holds_alternative<plan::TensorMapArgument>(argument);
    std::string text = (is_map ? "map of " : "") + shown(tensor->name);
    if (tensor->offset != 0) text += fmt::format(" + {}", tensor->offset);
    return text;
  }
  if (const auto* stride = std::get_if<plan::StrideArgument>(&argument)) {
    return fmt::format("stride {} of {}", stride->axis, shown(stride->tensor));
  }
  if (const auto* param = std::get_if<plan::ParamOperand>(&argument)) return shown(param->name);
  if (const auto* constant = std::get_if<plan::ConstantOperand>(&argument)) {
    return fmt::format("{:g}", constant->value);
  }
  return "";
}

// The lines of a graph's listing that are of nodes come last.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

class Steps {
 public:
  explicit Steps(const ExplainedProgram& program) : program_(program) {
    if (program.compiled) plan_ = &program.compiled->plan;
  }

  Json view() {
    Json steps = Json::array();
    for (const plan::Step& step : program_.program.steps) {
      Json json = {{"number", steps.size()},  {"turns", nullptr},          {"made_by", nullptr},
                   {"outputs", nullptr},      {"graph", nullptr},          {"nodes", Json::array()},
                   {"values", Json::array()}, {"launches", Json::array()}, {"source", nullptr},
                   {"source_size", nullptr},  {"same_source", nullptr}};
      if (plan::turns_of(step) > 1) json["turns"] = plan::turns_of(step);
      std::visit([&](const auto& each) { add(each, json); }, step);
      steps.push_back(std::move(json));
    }
    return steps;
  }

 private:
  void add(const plan::CudnnStep& step, Json& json) {
    json["kind"] = "cuDNN graph";
    const std::vector<std::size_t>& clauses = program_.node_clauses[graphs_];
    if (plan_ != nullptr) {
      const plan::CompiledStep& compiled = plan_->compiled[graphs_];
      json["made_by"] =
          fmt::format("engine {} of heuristic {}, knobs {}, workspace {}", compiled.engine,
                      shown(compiled.heuristic), knobs_text(compiled.knobs),
                      bytes_text(compiled.workspace_bytes));
    }
    if (graphs_++ < kMostGraphs) {
      json["graph"] = graph_view(step, clauses);
      if (json["graph"].is_object()) name_graph(step.graph, clauses, json["graph"]);
    }
    std::vector<std::string> lines = lines_of(graph::to_text(step.graph));
    const std::size_t values = lines.size() - step.graph.nodes.size();
    for (std::size_t i = 0; i < values; ++i) json["values"].push_back(shown(lines[i]));
    for (std::size_t i = values; i < lines.size(); ++i) {
      const ExplainedClause& clause = program_.clauses[clauses[i - values]];
      json["nodes"].push_back({{"text", shown(lines[i])},
                               {"clauses", fmt::format("{}", clauses[i - values])},
                               {"line", clause.line},
                               {"keyword", clause.keyword}});
    }
  }

  // What is said where the pointer is, and to those who cannot see it.
  void name_graph(const graph::BackendGraph& graph, const std::vector<std::size_t>& clauses,
                  Json& view) const {
    view["label"] = fmt::format("Operation graph of {} nodes, listed as text", graph.nodes.size());
    std::size_t node = view["nodes"].size() - clauses.size();  // memory that is read comes first
    for (const std::size_t clause : clauses) {
      const ExplainedClause& of = program_.clauses[clause];
      const auto what = view["nodes"][node]["what"].get<std::string>();
      view["nodes"][node++]["what"] = fmt::format("{}\nline {}: {}", what, of.line, of.text);
    }
  }

  void add(const plan::DeriveStep& step, Json& json) {
    json["kind"] = step.once ? "kernel, once, when the plan is loaded" : "kernel";
    std::vector<std::string> outputs;
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      outputs.push_back(fmt::format("{} = {}", shown(step.outputs[i]), shown(step.expressions[i])));
    }
    json["outputs"] = fmt::format("{}", fmt::join(outputs, "; "));
    add_source(step.source, json);
    add_launches(plan::launched(program_.program, step), json);
  }

  void add(const plan::KernelStep& step, Json& json) {
    json["kind"] = "kernels";
    std::vector<std::string> outputs;
    for (const std::string& output : step.outputs) outputs.push_back(shown(output));
    json["outputs"] = fmt::format("writes {}", fmt::join(outputs, ", "));
    add_source(step.source, json);
    add_launches(step, json);
  }

  static void add_launches(const plan::KernelStep& step, Json& json) {
    for (const plan::Launch& launch : step.launches) {
      std::vector<std::string> arguments;
      for (const plan::KernelArgument& argument : launch.arguments) {
        arguments.push_back(argument_text(argument));
      }
      json["launches"].push_back({{"kernel", shown(launch.kernel)},
                                  {"grid", extents_text(launch.grid)},
                                  {"block", extents_text(launch.block)},
                                  {"cluster", extents_text(launch.cluster)},
                                  {"shared", bytes_text(launch.shared_bytes)},
                                  {"arguments", fmt::format("{}", fmt::join(arguments, ", "))}});
    }
  }

  // A source that was shown is not repeated.
  void add_source(const std::string& source, Json& json) {
    for (const auto& [number, text] : sources_) {
      if (*text != source) continue;
      json["same_source"] = fmt::format("{}", number);
      return;
    }
    sources_.emplace_back(json["number"].get<std::size_t>(), &source);
    const std::size_t bytes = std::min(source.size(), kMostSource - std::min(kMostSource, shown_));
    shown_ += bytes;
    std::string text = shown_lines(std::string_view(source).substr(0, bytes));
    if (bytes < source.size()) {
      text += fmt::format("\n... and {} more; `attnc explain --format json` has all of it",
                          bytes_text(static_cast<std::int64_t>(source.size() - bytes)));
    }
    json["source"] = std::move(text);
    json["source_size"] = fmt::format("{} lines", std::ranges::count(source, '\n'));
  }

  const ExplainedProgram& program_;
  const plan::Plan* plan_ = nullptr;
  std::size_t graphs_ = 0;
  std::size_t shown_ = 0;                                            // bytes of sources
  std::vector<std::pair<std::size_t, const std::string*>> sources_;  // of which step
};

Json checks_view(const plan::Program& program) {
  Json list = Json::array();
  if (!program.check) return list;
  for (const plan::IndexCheck::Fault& fault : program.check->faults) {
    list.push_back({{"expression", shown(fault.expression)}, {"what", shown(fault.what)}});
  }
  return list;
}

}  // namespace

Json program_view(const ExplainedProgram& program, const std::string& name,
                  const std::string& why_not_compiled) {
  Json view = {{"direction", name},
               {"refusal", nullptr},
               {"unknown", nullptr},
               {"choice", Json::array()},
               {"has_measured", false},
               {"has_reason", false},
               {"strategy", nullptr},
               {"strategy_engine", nullptr},
               {"predicted", nullptr},
               {"workspace", nullptr},
               {"parts", Json::array()},
               {"steps", Steps(program).view()},
               {"tensors", tensors_view(program.program.tensors)},
               {"internals", tensors_view(program.program.internals)},
               {"params", Json::array()},
               {"checks", checks_view(program.program)},
               {"bytes", bytes_text(program.bytes)}};
  for (const plan::ParamInfo& param : program.program.params) {
    view["params"].push_back({{"name", shown(param.name)}, {"dtype", to_string(param.dtype)}});
  }
  for (const std::string& part : program.parts) view["parts"].push_back({{"text", shown(part)}});
  if (program.refusal) {
    view["refusal"] = full_error_text(*program.refusal, program.source.get());
  } else if (!program.compiled) {
    view["unknown"] = why_not_compiled;
  } else {
    const plan::Plan& plan = program.compiled->plan;
    view["choice"] = choice_view(*program.compiled);
    view["has_reason"] = std::ranges::any_of(
        view["choice"], [](const Json& way) { return !way["reason"].is_null(); });
    view["has_measured"] = std::ranges::any_of(
        plan.choice, [](const plan::Alternative& way) { return way.measured_ms.has_value(); });
    view["strategy"] = shown(plan.strategy);
    view["strategy_engine"] = planner::engine_name_of(plan.strategy);
    if (!plan.choice.empty() && plan.choice.front().predicted_ms > 0) {
      view["predicted"] = milliseconds_text(plan.choice.front().predicted_ms);
    }
    view["workspace"] = memory_text(plan::memory_of(plan));
  }
  return view;
}

}  // namespace attn::tools::page
