#include "tools/page/expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>

namespace attn::tools::page {
namespace {

using ir::ExprId;
using ir::Op;

constexpr std::size_t kMostTensorBytes = 400'000;  // of all runs

void add_conditions(const ir::Attention& attention, ExprId id, std::vector<Condition>& all) {
  const ir::Node& node = attention.dag[id];
  if (node.is(Op::and_)) {
    for (const ExprId operand : node.operands) add_conditions(attention, operand, all);
    return;
  }
  const auto same = [id](const Condition& each) { return each.expression == id; };
  if (std::ranges::any_of(all, same)) return;
  all.push_back({id, ir::to_source(attention, id), node.pos});
}

// The number as JavaScript's Number() reads it.
std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return fmt::format("{}", value);
}

Json number_json(double value) {
  return std::isfinite(value) ? Json(value) : Json(number_text(value));
}

std::string_view type_text(ir::Type type) {
  switch (type) {
    case ir::Type::boolean: return "boolean";
    case ir::Type::integer: return "integer";
    case ir::Type::wide: return "wide";
    case ir::Type::real: return "real";
  }
  return "";
}

std::vector<ExprId> ids_of(const ir::Attention& attention,
                           const std::vector<Condition>& conditions) {
  std::vector<ExprId> roots;
  for (const Condition& condition : conditions) roots.push_back(condition.expression);
  return ir::reachable(attention.dag, roots);
}

class NodeWriter {
 public:
  NodeWriter(const ir::Attention& attention, const reference::Bindings& values)
      : attention_(attention), values_(values) {}

  Json write(const ir::Node& node, const std::map<ExprId, std::size_t>& places) const {
    Json json = {{"op", ir::info(node.op).name}, {"type", type_text(node.type)}};
    switch (node.op) {
      case Op::const_bool_: json["value"] = std::get<bool>(node.attribute) ? 1 : 0; break;
      case Op::const_wide_:
        json["value"] = fmt::format("{}", std::get<std::int64_t>(node.attribute));
        break;
      case Op::const_int_: json["value"] = std::get<std::int64_t>(node.attribute); break;
      case Op::const_real_: json["value"] = number_json(std::get<double>(node.attribute)); break;
      case Op::dim_: json["value"] = attention_.dims[*ir::parse_dim(symbol(node))]; break;
      case Op::param_:
        json["value"] = number_json(values_.params.find(symbol(node))->second);
        break;
      case Op::load_: json["name"] = symbol(node); break;
      default: break;
    }
    for (const ExprId operand : node.operands) json["of"].push_back(places.at(operand));
    return json;
  }

 private:
  static const std::string& symbol(const ir::Node& node) {
    return std::get<std::string>(node.attribute);
  }

  const ir::Attention& attention_;
  const reference::Bindings& values_;
};

// Elements are equal if their bits are: 0 is not -0, and a NaN is itself. Stops early when there is
// more than the limit.
std::string runs_text(const io::HostTensor& tensor, std::size_t limit) {
  const bool is_wide = tensor.dtype == DType::i64;
  const auto bits_of = [&](std::size_t i) {
    return is_wide ? static_cast<std::uint64_t>(tensor.integer(i))
                   : std::bit_cast<std::uint64_t>(tensor.values[i]);
  };
  std::string text;
  for (std::size_t at = 0; at < tensor.values.size() && text.size() <= limit;) {
    std::size_t end = at + 1;
    const std::uint64_t bits = bits_of(at);
    while (end < tensor.values.size() && bits_of(end) == bits) ++end;
    text += at == 0 ? "" : ",";
    text += is_wide ? fmt::format("{}", tensor.integer(at)) : number_text(tensor.values[at]);
    if (end > at + 1) text += fmt::format("*{}", end - at);
    at = end;
  }
  return text;
}

}  // namespace

std::vector<Condition> conditions_of(const ir::Attention& attention) {
  std::vector<Condition> all;
  for (const ExprId mask : attention.masks) add_conditions(attention, mask, all);
  return all;
}

Json nodes_json(const ir::Attention& attention, const std::vector<Condition>& conditions,
                const reference::Bindings& values) {
  const NodeWriter writer(attention, values);
  std::map<ExprId, std::size_t> places;
  Json nodes = Json::array(), roots = Json::array();
  for (const ExprId id : ids_of(attention, conditions)) {
    nodes.push_back(writer.write(attention.dag[id], places));
    places.emplace(id, places.size());
  }
  for (const Condition& condition : conditions) roots.push_back(places.at(condition.expression));
  return {{"nodes", nodes}, {"roots", roots}};
}

Json tensors_json(const ir::Attention& attention, const std::vector<Condition>& conditions,
                  const reference::Bindings& values) {
  Json json = Json::object();
  std::size_t left = kMostTensorBytes;
  for (const ExprId id : ids_of(attention, conditions)) {
    const ir::Node& node = attention.dag[id];
    if (!node.is(Op::load_)) continue;
    const auto& name = std::get<std::string>(node.attribute);
    if (json.contains(name)) continue;
    const io::HostTensor& tensor = values.tensors.find(name)->second;
    std::string runs = runs_text(tensor, left);
    json[name] = nullptr;
    if (runs.size() > left) continue;
    left -= runs.size();
    json[name] = {{"dims", tensor.dims}, {"runs", std::move(runs)}};
    if (tensor.dtype == DType::i64) json[name]["wide"] = true;
  }
  return json;
}

}  // namespace attn::tools::page
