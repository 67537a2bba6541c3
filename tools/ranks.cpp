#include "tools/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "compiler/gradient/differentiate.h"
#include "compiler/masks_of_values/known_values.h"
#include "compiler/reference/gradients.h"
#include "compiler/sharding/part_attention.h"
#include "compiler/sharding/simulator.h"
#include "runtime/base/check.h"
#include "runtime/ranks/given_values.h"
#include "tools/console.h"
#include "tools/patience.h"
#include "tools/target_option.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

using sharding::Estimate;
using sharding::RankEstimate;

Error wrong(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

// Values that masks read, if there are any and --in gives some.
struct Known {
  reference::Bindings values;
  std::vector<Sharded::Input> inputs;
};

Result<std::string> hash_of(const ir::Attention& attention, const reference::Bindings& values,
                            const std::string& name) {
  const auto tensor = values.tensors.find(name);
  if (tensor == values.tensors.end()) return ranks::hash_of(values.params.find(name)->second);
  const auto declared = std::ranges::find(attention.tensors, name, &ir::CapturedTensor::name);
  ATTN_CHECK(declared != attention.tensors.end(), "masks read tensors of the attention");
  return ranks::hash_of(tensor->second, declared->dtype);
}

// What --in gives for masks to read, and unknown names. Errors: invalid_argument for other inputs
// that nothing computes with.
Result<InputTexts> given_to_masks(const ir::Attention& attention, const RankOptions& options) {
  const std::set<std::string> read = names_read(attention, Needs::masks);
  InputTexts texts;
  for (const auto& [name, text] : options.inputs) {
    if (read.contains(name) || !is_input(attention, name)) {
      texts.emplace(name, text);
    } else if (!options.simulates) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("--in {}: no mask reads it, so its values do not change how the "
                               "attention is divided",
                               name),
                   {"`attnc explain --simulate` computes with them"}};
    }
  }
  return texts;
}

Result<std::optional<Known>> known_of(const ir::Attention& attention, const InputTexts& texts) {
  if (texts.empty()) return std::optional<Known>();
  ATTN_ASSIGN(Inputs inputs, make_inputs(attention, texts, Missing::lifelike, Needs::masks));
  auto& [tensors, params] = inputs.values;
  Known known{{{std::move_iterator(tensors.begin()), std::move_iterator(tensors.end())},
               {params.begin(), params.end()}},
              {}};
  for (const auto& [name, origin] : inputs.origins) {
    if (origin != kDefault && !texts.contains(name)) {
      return wrong(fmt::format("masks also read {}: give its value too, as --in {}=VALUE",
                               shown(name), shown(name)));
    }
    ATTN_ASSIGN(std::string hash, hash_of(attention, known.values, name));
    known.inputs.push_back({name, origin, std::move(hash)});
  }
  return std::optional(std::move(known));
}

Json traffic_json(const sharding::Traffic& traffic) {
  return {{"inside", std::llround(traffic.inside)}, {"between", std::llround(traffic.between)}};
}

Json intervals_json(const sharding::Intervals& set) {
  Json json = Json::array();
  for (const sharding::Interval& each : set) json.push_back({each.begin, each.end});
  return json;
}

Json link_json(const sharding::Link& link) {
  return {{"name", link.name},
          {"gigabytes_per_second", link.gigabytes},
          {"latency_ms", link.latency_ms}};
}

Json rank_json(const Sharded& sharded, std::size_t rank) {
  const RankEstimate& of = sharded.choice.estimate.ranks[rank];
  const sharding::Sharding& dealt = sharded.choice.sharding;
  const sharding::Interval heads = dealt.key_heads(static_cast<int>(rank), sharded.attention);
  Json json = {{"rank", rank},
               {"rows", intervals_json(dealt.rows.of(static_cast<int>(rank)))},
               {"keys", intervals_json(dealt.keys.of(static_cast<int>(rank)))},
               {"key_heads", {heads.begin, heads.end}},
               {"work", of.work},
               {"received", traffic_json(of.received)},
               {"sent", traffic_json(of.sent)},
               {"compute_ms", of.compute_ms},
               {"forward_ms", of.forward_ms}};
  if (sharded.trains()) {
    json["received_backward"] = traffic_json(of.received_backward);
    json["sent_backward"] = traffic_json(of.sent_backward);
    json["backward_ms"] = of.backward_ms;
  }
  return json;
}

Json scheme_json(const sharding::Scheme& scheme, bool backward) {
  Json json = {{"name", scheme.name}};
  if (!scheme.refusal.empty()) {
    json["refusal"] = scheme.refusal;
    return json;
  }
  json["balance"] = scheme.balance;
  json["received"] = std::llround(scheme.received);
  json["forward_ms"] = scheme.forward_ms;
  if (!backward) return json;
  json["received_backward"] = std::llround(scheme.received_backward);
  json["backward_ms"] = scheme.backward_ms;
  return json;
}

constexpr std::pair<std::string_view, io::HostTensor reference::Outputs::*> kCompared[] = {
    {"o", &reference::Outputs::o},
    {"lse", &reference::Outputs::lse},
    {"max", &reference::Outputs::max},
    {"sum_exp", &reference::Outputs::sum_exp},
    {"max_with_sink", &reference::Outputs::max_with_sink},
    {"sum_exp_with_sink", &reference::Outputs::sum_exp_with_sink},
    {"lse_without_sink", &reference::Outputs::lse_without_sink}};

// o and lse, by which parts are merged, and what the spec wants.
bool is_compared(const ir::Attention& attention, std::string_view name) {
  if (name == "o") return true;
  if (name == "lse") return !attention.is_pointwise();
  return std::ranges::any_of(ir::kOutputs, [&](const ir::Output& output) {
    return output.name == name && attention.*output.wanted;
  });
}

// Evaluates the undivided attention; without names, the forward alone.
Result<reference::Gradients> undivided(const ir::Attention& attention,
                                       const reference::Inputs& inputs, const io::HostTensor& d_o,
                                       const std::vector<std::string>& names,
                                       const reference::Options& options) {
  if (!names.empty()) return reference::gradients(attention, inputs, d_o, names, options);
  reference::Gradients forward;
  ATTN_ASSIGN(forward.outputs, reference::evaluate(attention, inputs, options));
  return forward;
}

// Largest difference, relative to the largest element, or to 1 if that is larger.
double difference(const io::HostTensor& x, const io::HostTensor& y) {
  double largest = 1, most = 0;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const double a = x.values[i], b = y.values[i];
    if (std::isfinite(b)) largest = std::max(largest, std::abs(b));
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double apart = std::abs(a - b);
    most = std::isnan(apart) ? HUGE_VAL : std::max(most, apart);
  }
  return most / largest;
}

}  // namespace

void add_ranks(CLI::App& command, RankOptions& options) {
  command.add_option("--ranks", options.ranks, "Divide the attention among N GPUs (docs/ranks.md)")
      ->type_name("N")
      ->check(CLI::Range(1, sharding::kMostRanks))
      ->default_text("");
  command
      .add_option("--link", options.link,
                  "With --ranks: what GPUs of a host send through: nvlink, gigabits a second "
                  "as 400g, or gigabytes a second as 120")
      ->type_name("SPEED");
  command.add_option("--network", options.network, "The same between hosts")->type_name("SPEED");
  command.add_option("--ranks-per-host", options.ranks_of_host, "GPUs of a host")
      ->type_name("N")
      ->check(CLI::Range(1, sharding::kMostRanks));
}

Result<sharding::Links> links_of(const RankOptions& options) {
  if (options.ranks == 0) {
    const RankOptions none;
    const bool given = options.link != none.link || options.network != none.network ||
                       options.ranks_of_host != none.ranks_of_host || !options.inputs.empty();
    if (given) return wrong("--link, --network, --ranks-per-host and --in need --ranks");
    return sharding::Links();
  }
  sharding::Links links;
  ATTN_ASSIGN(links.inside, sharding::parse_link(options.link));
  ATTN_ASSIGN(links.between, sharding::parse_link(options.network));
  links.ranks_of_host = options.ranks_of_host;
  return links;
}

Result<std::unique_ptr<Sharded>> shard(const Spec& spec, const RankOptions& options,
                                       const std::string& target_name, bool training) {
  ATTN_ASSIGN(const sharding::Links links, links_of(options));
  if (options.network != RankOptions().network && options.ranks <= links.ranks_of_host) {
    tell_note(
        fmt::format("--network has no effect: all ranks are on one host of {} (--ranks-per-host)",
                    links.ranks_of_host));
  }
  ATTN_ASSIGN(const plan::Target target,
              find_target(target_name.empty() ? kDefaultTarget : target_name, ""));
  ATTN_ASSIGN(const InputTexts texts, given_to_masks(spec.attention, options));
  ATTN_ASSIGN(std::optional<Known> known, known_of(spec.attention, texts));
  std::optional<masks_of_values::KnownValues> values;
  if (known) values.emplace(known->values);
  return driver::shard(spec.attention,
                       {.ranks = options.ranks,
                        .links = links,
                        .target = target,
                        .known = values ? &*values : nullptr,
                        .inputs = known ? known->inputs : std::vector<Sharded::Input>(),
                        .training = training,
                        .analyses = spec.analyses.get()});
}

namespace {

constexpr double kEqual = 1e-12;

// An error of lse relative to its size is one of the weights exp(score - lse) times that size: by
// how much errors of what they weight may be larger. No more than so much, or any result would do.
double amplification(const reference::Outputs& outputs) {
  constexpr double kLargest = 1e4;
  double largest = 1;
  for (const double lse : outputs.lse.values) {
    if (std::isfinite(lse)) largest = std::max(largest, std::abs(lse));
  }
  return std::min(largest, kLargest);
}

bool are_equal(const Differences& differences, double amplification) {
  return std::ranges::all_of(differences, [&](const auto& each) {
    const bool is_weighted = each.first == "o" || each.first.starts_with('d');
    return each.second <= kEqual * (is_weighted ? amplification : 1);
  });
}

}  // namespace

Result<Simulated> simulate(const Sharded& sharded, const InputTexts& texts, bool yes) {
  ir::Attention attention = sharded.attention;
  attention.gradients.clear();  // all of them
  if (attention.reads_d_lse) attention.gradients = gradient::wanted_gradients(attention);
  ATTN_RETURN_IF_ERROR(check_host_memory(attention, Needs::gradients));
  ATTN_RETURN_IF_ERROR(tell_inputs(attention, texts, Needs::gradients, yes, seconds_of_element()));
  ATTN_ASSIGN(Inputs inputs, make_inputs(attention, texts, Missing::lifelike, Needs::gradients));
  io::HostTensor d_o = std::move(inputs.values.tensors.extract(kCotangent).mapped());
  const auto d_lse = inputs.values.tensors.extract(kCotangentOfLse);
  const io::HostTensor* const of_lse = d_lse.empty() ? nullptr : &d_lse.mapped();
  std::vector<std::string> names;
  if (sharded.trains()) names = gradient::wanted_gradients(attention);
  Patience patience(sharded.attention, yes, {"simulation", 2});
  ATTN_ASSIGN(const reference::Gradients whole,
              undivided(attention, inputs.values, d_o, names,
                        {.unrounded = true, .observer = patience.observer(), .d_lse = of_lse}));
  ATTN_ASSIGN(
      const sharding::Simulated made,
      sharding::simulate(attention,
                         sharding::rank_programs(sharded.choice.sharding, sharded.map, attention),
                         inputs.values, sharded.trains() ? &d_o : nullptr,
                         {.threads = 0,
                          .advances = [&](double share) { patience.advance(share); },
                          .d_lse = sharded.trains() ? of_lse : nullptr}));
  Differences differences;
  for (const auto& [name, output] : kCompared) {
    if (is_compared(attention, name))
      differences[std::string(name)] = difference(made.outputs.*output, whole.outputs.*output);
  }
  for (const std::string& name : names) {
    const io::HostTensor& expected = whole.of.find(name)->second;
    const auto found = made.gradients.find(name);
    // Nobody reads a learned tensor whose scores are all hidden.
    const io::HostTensor none{DType::f64, expected.dims,
                              std::vector<double>(expected.values.size())};
    const bool is_learned = attention.find_tensor(name) != nullptr;
    differences[(is_learned ? "d_" : "d") + name] =
        difference(found == made.gradients.end() ? none : found->second, expected);
  }
  const bool equal = are_equal(differences, amplification(whole.outputs));
  return Simulated{std::move(differences), equal};
}

Json to_json(const Sharded& sharded) {
  const sharding::Sharding& dealt = sharded.choice.sharding;
  const Estimate& estimate = sharded.choice.estimate;
  const bool backward = sharded.trains();
  Json json = {{"name", sharded.attention.name},
               {"target", sharded.target},
               {"ranks", dealt.ranks},
               {"groups_of_heads", dealt.groups},
               {"dealt", dealt.rows_travel ? "keys" : "rows"},
               {"dealing", (dealt.rows_travel ? dealt.keys : dealt.rows).name},
               {"arrivals", dealt.arrivals},
               {"own_last", dealt.own_last},
               {"rows_wait", dealt.rows_wait},
               {"considered", sharded.choice.considered},
               {"exact", sharded.map.exactness == masks::Exactness::exact},
               {"link", link_json(sharded.links.inside)},
               {"network", link_json(sharded.links.between)},
               {"ranks_per_host", sharded.links.ranks_of_host},
               {"balance", estimate.balance()},
               {"received", std::llround(estimate.bytes())},
               {"forward_ms", estimate.forward_ms()},
               {"one_gpu_ms", sharded.alone.forward_ms()}};
  if (backward) {
    json["backward_ms"] = estimate.backward_ms();
    json["one_gpu_backward_ms"] = sharded.alone.backward_ms();
  }
  json["inputs"] = inputs_json(sharded);
  json["schemes"] = Json::array();
  for (const sharding::Scheme& scheme : sharded.schemes)
    json["schemes"].push_back(scheme_json(scheme, backward));
  json["of_ranks"] = Json::array();
  for (std::size_t rank = 0; rank < estimate.ranks.size(); ++rank)
    json["of_ranks"].push_back(rank_json(sharded, rank));
  return json;
}

Json inputs_json(const Sharded& sharded) {
  Json json = Json::object();
  for (const Sharded::Input& input : sharded.inputs)
    json[input.name] = {{"from", input.origin}, {"hash", input.hash}};
  return json;
}

}  // namespace attn::tools
