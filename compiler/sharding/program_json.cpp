#include "compiler/sharding/program_json.h"

#include <algorithm>

namespace attn::sharding {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(Interval interval) { return {interval.begin, interval.end}; }

Json to_json(const Message& message) {
  return {{"peer", message.peer},
          {"tensors", message.tensors},
          {"key_heads", to_json(message.key_heads)},
          {"indices", sharding::to_json(message.indices)}};
}

Json to_json(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) list.push_back(to_json(message));
  return list;
}

Json to_json(const Exchange& exchange) {
  return {{"sends", to_json(exchange.sends)}, {"receives", to_json(exchange.receives)}};
}

Json to_json(const std::vector<Exchange>& exchanges) {
  Json list = Json::array();
  for (const Exchange& exchange : exchanges) list.push_back(to_json(exchange));
  return list;
}

// The tensors that the part's plan reads under another name, or besides those of the whole.
Json to_json(const Part& part, const PartAttention& made, const PartPlans& plans) {
  Json json = {{"stage", part.stage},
               {"rows", sharding::to_json(part.rows)},
               {"keys", sharding::to_json(part.keys)},
               {"sink", part.sink}};
  if (!plans.forward.empty()) json["forward"] = plans.forward;
  if (!plans.backward.empty()) json["backward"] = plans.backward;
  json["renamed"] = made.renamed;
  json["numbers"] = Json::object();
  for (const auto& [name, numbers] : made.numbers)
    json["numbers"][name] = count(part.rows) == static_cast<std::int64_t>(numbers.size()) &&
                                    numbers == sharding::numbers(part.rows)
                                ? "rows"
                                : "keys";
  return json;
}

Json to_json(const ir::Attention& attention, const RankProgram& program,
             const std::vector<PartPlans>& plans, bool backward) {
  Json parts = Json::array();
  for (std::size_t i = 0; i < program.parts.size(); ++i) {
    const Part& part = program.parts[i];
    parts.push_back(to_json(part, part_attention(attention, part, program.key_heads), plans[i]));
  }
  Json json = {{"rank", program.rank},
               {"key_heads", to_json(program.key_heads)},
               {"rows", sharding::to_json(program.rows)},
               {"keys", sharding::to_json(program.keys)},
               {"parts", std::move(parts)},
               {"inputs", to_json(program.inputs)},
               {"results", to_json(program.results)}};
  if (!backward) return json;
  json["backward_inputs"] = to_json(program.backward_inputs);
  json["gradients"] = to_json(program.gradients);
  return json;
}

// A rank may have no parts, so any rank tells.
bool has_backwards(const std::vector<std::vector<PartPlans>>& plans) {
  return std::ranges::any_of(plans, [](const std::vector<PartPlans>& of_rank) {
    return std::ranges::any_of(of_rank,
                               [](const PartPlans& part) { return !part.backward.empty(); });
  });
}

}  // namespace

Json to_json(const Intervals& set) {
  Json list = Json::array();
  for (const Interval& each : set) list.push_back(to_json(each));
  return list;
}

Json to_json(const ir::Attention& attention, const Sharding& sharding,
             const std::vector<RankProgram>& programs,
             const std::vector<std::vector<PartPlans>>& plans) {
  Json dims = Json::object();
  for (const ir::Dim dim : ir::kDims) dims[std::string(to_string(dim))] = attention.dims[dim];
  Json list = Json::array();
  const bool backward = has_backwards(plans);
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    list.push_back(to_json(attention, programs[rank], plans[rank], backward));
  return {{"name", attention.name},         {"dtype", to_string(attention.dtype)},
          {"ranks", sharding.ranks},        {"groups_of_heads", sharding.groups},
          {"sharding", sharding.to_text()}, {"dims", std::move(dims)},
          {"of_ranks", std::move(list)}};
}

}  // namespace attn::sharding
