#include <cmath>
#include <nlohmann/json.hpp>

#include "compiler/ir/attention.h"
#include "compiler/ir/text.h"

namespace attn::ir {
namespace {

using Json = nlohmann::ordered_json;

void put_position(Json& object, SourcePos pos) {
  if (pos.line != 0) object["pos"] = {pos.line, pos.column};
}

Json attribute_json(const Attribute& attribute) {
  if (const auto* value = std::get_if<bool>(&attribute)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&attribute)) return *value;
  if (const auto* value = std::get_if<std::string>(&attribute)) return *value;
  const double real = std::get<double>(attribute);
  // JSON has no infinities.
  return std::isfinite(real) ? Json(real) : Json(real_text(real));
}

class JsonWriter {
 public:
  explicit JsonWriter(const Attention& attention)
      : attention_(attention), numbers_(attention.dag.size()) {
    ids_ = reachable(attention.dag, attention.roots());
    for (std::size_t i = 0; i < ids_.size(); ++i) numbers_[ids_[i]] = i;
  }

  std::string write() const {
    Json json = {{"name", attention_.name}};
    put_position(json, attention_.pos);
    json["dims"] = dims();
    json["dtype"] = to_string(attention_.dtype);
    json["layouts"] = layouts();
    json["align"] = to_string(attention_.align);
    json["tensors"] = tensors();
    json["params"] = params();
    json["nodes"] = nodes();
    json["scale"] = numbers_[attention_.scale];
    json["score"] = numbers_[attention_.score];
    json["masks"] = numbers(attention_.masks);
    json["outputs"] = Json::array();
    for (const Output& output : kOutputs) {
      if (attention_.*output.wanted) json["outputs"].push_back(output.name);
    }
    put_optional_parts(json);
    return json.dump(2) + "\n";
  }

 private:
  void put_optional_parts(Json& json) const {
    if (attention_.sink) json["sink"] = numbers_[*attention_.sink];
    if (attention_.dropout) {
      json["dropout"] = {{"probability", attention_.dropout->probability}};
      if (attention_.dropout->keep) json["dropout"]["keep"] = numbers_[*attention_.dropout->keep];
      put_position(json["dropout"], attention_.dropout->pos);
    }
    if (attention_.lengths_q) json["lengths"].push_back("q");
    if (attention_.lengths_kv) json["lengths"].push_back("kv");
    if (!attention_.gradients.empty()) json["gradients"] = attention_.gradients;
    if (attention_.deterministic) json["deterministic"] = true;
  }

  static Json layout_json(const Layout& layout) {
    if (layout.kind == LayoutKind::strided) return layout.strides;
    if (layout.kind != LayoutKind::paged) return to_string(layout.kind);
    Json paged = {{"page", layout.page}, {"pages", layout.pages}};
    if (layout.tables != 1) paged["tables"] = layout.tables;
    return {{"paged", std::move(paged)}};
  }

  Json numbers(const std::vector<ExprId>& ids) const {
    Json json = Json::array();
    for (ExprId id : ids) json.push_back(numbers_[id]);
    return json;
  }

  Json dims() const {
    Json json = Json::object();
    for (Dim dim : kDims) {
      const auto size = attention_.dims.get(dim);
      json[std::string(to_string(dim))] = size ? Json(*size) : Json();
    }
    return json;
  }

  Json layouts() const {
    Json json = Json::object();
    for (const auto& [name, layout] : attention_.layouts) {
      json[name] = layout_json(layout);
    }
    return json;
  }

  Json tensors() const {
    Json json = Json::array();
    for (const CapturedTensor& tensor : attention_.tensors) {
      json.push_back({{"name", tensor.name},
                      {"dtype", to_string(tensor.dtype)},
                      {"extents", numbers(tensor.extents)}});
      if (tensor.learned) json.back()["learned"] = true;
      if (tensor.monotone) json.back()["monotone"] = true;
      if (tensor.runs) json.back()["runs"] = numbers_[*tensor.runs];
      if (tensor.longest_run) json.back()["longest_run"] = numbers_[*tensor.longest_run];
      if (tensor.fallback) json.back()["fallback"] = numbers_[*tensor.fallback];
      put_position(json.back(), tensor.pos);
    }
    return json;
  }

  Json params() const {
    Json json = Json::array();
    for (const Param& param : attention_.params) {
      json.push_back({{"name", param.name}, {"dtype", to_string(param.dtype)}});
      put_position(json.back(), param.pos);
    }
    return json;
  }

  Json nodes() const {
    Json json = Json::array();
    for (ExprId id : ids_) {
      const Node& node = attention_.dag[id];
      json.push_back({{"op", info(node.op).name}, {"type", to_string(node.type)}});
      if (info(node.op).attribute != AttributeKind::none) {
        json.back()["value"] = attribute_json(node.attribute);
      }
      if (!node.operands.empty()) json.back()["operands"] = numbers(node.operands);
      put_position(json.back(), node.pos);
    }
    return json;
  }

  const Attention& attention_;
  std::vector<ExprId> ids_;
  std::vector<std::size_t> numbers_;
};

}  // namespace

std::string to_json(const Attention& attention) { return JsonWriter(attention).write(); }

}  // namespace attn::ir
