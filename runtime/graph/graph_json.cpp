#include "runtime/graph/graph_json.h"

#include "runtime/graph/operands.h"

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
  if (tensor.reordering != Reordering::none) json["reordering"] = to_string(tensor.reordering);
  return json;
}

std::optional<Uid> read_optional(const json::Value& value, std::string_view key) {
  return value.has(key) ? std::optional(value[key].integer()) : std::nullopt;
}

Tensor read_tensor(const json::Value& value) {
  value.only(
      {"uid", "name", "dtype", "dims", "strides", "storage", "alignment", "ragged", "reordering"});
  Tensor tensor;
  tensor.uid = value["uid"].integer();
  tensor.name = value["name"].text();
  tensor.dtype = value["dtype"].named(parse_dtype);
  tensor.dims = value["dims"].integers();
  tensor.strides = value["strides"].integers();
  tensor.storage = value["storage"].named(parse_storage);
  tensor.alignment = value["alignment"].integer();
  tensor.ragged = read_optional(value, "ragged");
  if (value.has("reordering")) tensor.reordering = value["reordering"].named(parse_reordering);
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
    return {{"op", "matmul"},
            {"a", node.a},
            {"b", node.b},
            {"c", node.c},
            {"compute", to_string(node.compute)}};
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
  Json operator()(const BandMask& node) const {
    return {{"op", "band_mask"},
            {"side", to_string(node.side)},
            {"x", node.x},
            {"fill", node.fill},
            {"y", node.y}};
  }
  Json operator()(const Reshape& node) const {
    return {{"op", "reshape"}, {"x", node.x}, {"y", node.y}};
  }
  Json operator()(const BlockDequantize& node) const {
    return {{"op", "block_dequantize"},
            {"x", node.x},
            {"scale", node.scale},
            {"size", node.size},
            {"y", node.y}};
  }
  Json operator()(const SdpaForward& node) const {
    Json json = {
        {"op", "sdpa_forward"}, {"q", node.q}, {"k", node.k}, {"v", node.v}, {"o", node.o}};
    if (node.stats) json["stats"] = *node.stats;
    if (node.score) json["score"] = *node.score;
    if (node.dropout != 0) json["dropout"] = json::of_number(node.dropout);
    return json;
  }
};

Json json_of(const Node& node) {
  Json json = std::visit(NodeWriter{}, node);
  for (const NamedInput& input : named_inputs_of(node)) json[std::string(input.name)] = input.uid;
  put_position(json, position_of(node));
  return json;
}

// Reads the members that only Matmul has; those of named_inputs_of are read for every node.
Matmul read_matmul(const json::Value& value) {
  value.only({"op", "a", "b", "c", "compute", "m", "n", "k", "pos"});
  Matmul node;
  node.a = value["a"].integer();
  node.b = value["b"].integer();
  node.c = value["c"].integer();
  node.compute = value["compute"].named(parse_dtype);
  node.pos = read_position(value);
  return node;
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

BandMask read_band_mask(const json::Value& value) {
  value.only({"op", "side", "x", "fill", "y", "bound", "lengths_q", "lengths_kv", "pos"});
  BandMask node;
  node.side = value["side"].named(parse_band_side);
  node.x = value["x"].integer();
  node.fill = value["fill"].integer();
  node.y = value["y"].integer();
  node.pos = read_position(value);
  return node;
}

Reshape read_reshape(const json::Value& value) {
  value.only({"op", "x", "y", "pos"});
  return {value["x"].integer(), value["y"].integer(), read_position(value)};
}

BlockDequantize read_block_dequantize(const json::Value& value) {
  value.only({"op", "x", "scale", "size", "y", "pos"});
  return {value["x"].integer(), value["scale"].integer(), value["y"].integer(),
          value["size"].integer(), read_position(value)};
}

SdpaForward read_sdpa_forward(const json::Value& value) {
  value.only({"op", "q", "k", "v", "o", "stats", "score", "modified", "sink", "dropout",
#define ATTN_SDPA_INPUT(name, attribute) #name,
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
              "pos"});
  SdpaForward node;
  node.q = value["q"].integer();
  node.k = value["k"].integer();
  node.v = value["v"].integer();
  node.o = value["o"].integer();
  node.stats = read_optional(value, "stats");
  node.score = read_optional(value, "score");
  if (value.has("dropout")) node.dropout = value["dropout"].number();
  node.pos = read_position(value);
  return node;
}

Node read_kind(const json::Value& value) {
  const std::string op = value["op"].text();
  if (op == "matmul") return read_matmul(value);
  if (op == "pointwise") return read_pointwise(value);
  if (op == "reduction") return read_reduction(value);
  if (op == "rng") return read_rng(value);
  if (op == "paged_load") return read_paged_load(value);
  if (op == "band_mask") return read_band_mask(value);
  if (op == "sdpa_forward") return read_sdpa_forward(value);
  if (op == "reshape") return read_reshape(value);
  if (op == "block_dequantize") return read_block_dequantize(value);
  value["op"].fail("is not a known name");
  return {};
}

Node read_node(const json::Value& value) {
  Node node = read_kind(value);
  for (const std::string_view name : input_names_of(node)) {
    if (value.has(name)) set_named_input(node, name, value[name].integer());
  }
  return node;
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
