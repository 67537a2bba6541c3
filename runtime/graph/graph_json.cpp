#include "runtime/graph/graph_json.h"

namespace attn::graph {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Tensor& tensor) {
  Json json = {{"uid", tensor.uid},
               {"name", json::of_text(tensor.name)},
               {"dtype", to_string(tensor.dtype)},
               {"dims", tensor.dims},
               {"strides", tensor.strides},
               {"storage", to_string(tensor.storage)},
               {"alignment", tensor.alignment}};
  if (tensor.ragged) json["ragged"] = *tensor.ragged;
  return json;
}

std::optional<Uid> read_optional(const json::Value& value, std::string_view key) {
  return value.has(key) ? std::optional(value[key].integer()) : std::nullopt;
}

Tensor read_tensor(const json::Value& value) {
  value.only({"uid", "name", "dtype", "dims", "strides", "storage", "alignment", "ragged"});
  Tensor tensor;
  tensor.uid = value["uid"].integer();
  tensor.name = value["name"].text();
  tensor.dtype = value["dtype"].named(parse_dtype);
  tensor.dims = value["dims"].integers();
  tensor.strides = value["strides"].integers();
  tensor.storage = value["storage"].named(parse_storage);
  tensor.alignment = value["alignment"].integer();
  tensor.ragged = read_optional(value, "ragged");
  return tensor;
}

void put_position(Json& json, const SourcePos& pos) {
  if (pos.line != 0 || pos.column != 0) json["pos"] = {pos.line, pos.column};
}

SourcePos read_position(const json::Value& value) {
  if (!value.has("pos")) return {};
  const auto numbers = value["pos"].list([](const json::Value& number) {
    return static_cast<std::uint32_t>(number.integer(0, std::numeric_limits<std::uint32_t>::max()));
  });
  if (numbers.size() == 2) return {numbers[0], numbers[1]};
  value["pos"].fail("expected a line and a column");
  return {};
}

struct NodeWriter {
  Json operator()(const Matmul& node) const {
    Json json = {{"op", "matmul"},
                 {"a", node.a},
                 {"b", node.b},
                 {"c", node.c},
                 {"compute", to_string(node.compute)}};
    if (node.m) json["m"] = *node.m;
    if (node.n) json["n"] = *node.n;
    if (node.k) json["k"] = *node.k;
    return json;
  }
  Json operator()(const Pointwise& node) const {
    Json json = {{"op", "pointwise"},
                 {"mode", to_string(node.mode)},
                 {"compute", to_string(node.compute)},
                 {"x", node.x}};
    if (node.b) json["b"] = *node.b;
    if (node.t) json["t"] = *node.t;
    json["y"] = node.y;
    if (node.axis) json["axis"] = *node.axis;
    return json;
  }
  Json operator()(const Reduction& node) const {
    return {{"op", "reduction"},
            {"mode", to_string(node.op)},
            {"compute", to_string(node.compute)},
            {"x", node.x},
            {"y", node.y}};
  }
  Json operator()(const Rng& node) const {
    return {{"op", "rng"},
            {"keep", json::of_number(node.keep)},
            {"seed", node.seed},
            {"offset", node.offset},
            {"y", node.y}};
  }
  Json operator()(const PagedLoad& node) const {
    return {{"op", "paged_load"},
            {"container", node.container},
            {"table", node.table},
            {"lengths", node.lengths},
            {"y", node.y}};
  }
};

Json json_of(const Node& node) {
  Json json = std::visit(NodeWriter{}, node);
  put_position(json, position_of(node));
  return json;
}

Matmul read_matmul(const json::Value& value) {
  value.only({"op", "a", "b", "c", "compute", "m", "n", "k", "pos"});
  return {value["a"].integer(),      value["b"].integer(),
          value["c"].integer(),      value["compute"].named(parse_dtype),
          read_position(value),      read_optional(value, "m"),
          read_optional(value, "n"), read_optional(value, "k")};
}

Pointwise read_pointwise(const json::Value& value) {
  value.only({"op", "mode", "compute", "x", "b", "t", "y", "axis", "pos"});
  Pointwise node;
  node.mode = value["mode"].named(parse_pointwise_mode);
  node.compute = value["compute"].named(parse_dtype);
  node.x = value["x"].integer();
  node.b = read_optional(value, "b");
  node.t = read_optional(value, "t");
  node.y = value["y"].integer();
  node.axis = read_optional(value, "axis");
  node.pos = read_position(value);
  return node;
}

Reduction read_reduction(const json::Value& value) {
  value.only({"op", "mode", "compute", "x", "y", "pos"});
  return {value["mode"].named(parse_reduce_op), value["compute"].named(parse_dtype),
          value["x"].integer(), value["y"].integer(), read_position(value)};
}

Rng read_rng(const json::Value& value) {
  value.only({"op", "keep", "seed", "offset", "y", "pos"});
  return {value["keep"].number(), value["seed"].integer(), value["offset"].integer(),
          value["y"].integer(), read_position(value)};
}

PagedLoad read_paged_load(const json::Value& value) {
  value.only({"op", "container", "table", "lengths", "y", "pos"});
  return {value["container"].integer(), value["table"].integer(), value["lengths"].integer(),
          value["y"].integer(), read_position(value)};
}

Node read_node(const json::Value& value) {
  const std::string op = value["op"].text();
  if (op == "matmul") return read_matmul(value);
  if (op == "pointwise") return read_pointwise(value);
  if (op == "reduction") return read_reduction(value);
  if (op == "rng") return read_rng(value);
  if (op == "paged_load") return read_paged_load(value);
  value["op"].fail("is not one of the known names");
  return {};
}

}  // namespace

Json json_of(const BackendGraph& graph) {
  Json json = {{"tensors", Json::array()}, {"nodes", Json::array()}};
  for (const Tensor& tensor : graph.tensors) json["tensors"].push_back(json_of(tensor));
  for (const Node& node : graph.nodes) json["nodes"].push_back(json_of(node));
  return json;
}

BackendGraph read_graph(const json::Value& value) {
  value.only({"tensors", "nodes"});
  return {value["tensors"].list(read_tensor), value["nodes"].list(read_node)};
}

std::string to_json(const BackendGraph& graph) { return json_of(graph).dump(); }

Result<BackendGraph> from_json(std::string_view text) {
  ATTN_ASSIGN(const nlohmann::json document, json::parse(text));
  json::Failure failure;
  BackendGraph graph = read_graph({document, failure});
  ATTN_RETURN_IF_ERROR(failure.status());
  return graph;
}

}  // namespace attn::graph
