#include "runtime/ranks/exchanges.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/check.h"

namespace attn::ranks {
namespace {

constexpr Carried kCarried[] = {{"q", Divided::rows, Width::qk},
                                {"k", Divided::keys, Width::qk},
                                {"v", Divided::keys, Width::v},
                                {"o", Divided::rows, Width::v},
                                {"do", Divided::rows, Width::v},
                                {"dq", Divided::rows, Width::qk},
                                {"dk", Divided::keys, Width::qk},
                                {"dv", Divided::keys, Width::v},
                                {"lse"},
                                {"dlse"},
                                {"max"},
                                {"sum_exp"},
                                {"max_with_sink"},
                                {"sum_exp_with_sink"},
                                {"lse_without_sink"}};

using Payloads = std::vector<Payload>;

Payloads payloads(const std::vector<WholeTensor>& tensors, Divided of,
                  std::initializer_list<plan::TensorRole> roles) {
  Payloads payloads;
  for (const WholeTensor& tensor : tensors) {
    if (tensor.divided == of && std::ranges::find(roles, tensor.role) != roles.end())
      payloads.push_back({tensor.name, tensor.dtype});
  }
  return payloads;
}

bool has(const Payloads& payloads, std::string_view name) {
  return std::ranges::find(payloads, name, &Payload::name) != payloads.end();
}

// What the parts of a stage need, or those of all stages until it.
struct Needs {
  Intervals rows, keys;
};
Needs needs_of(const Program& program, int first_stage, int last_stage) {
  Needs needs;
  for (const Part& part : program.parts) {
    if (part.stage < first_stage || part.stage > last_stage) continue;
    needs.rows = both(needs.rows, part.rows);
    needs.keys = both(needs.keys, part.keys);
  }
  return needs;
}

// The exchanges of all ranks, each made when it is asked for.
class Exchanging {
 public:
  explicit Exchanging(Division& division) : division_(division), stages_(division.stages()) {
    using enum plan::TensorRole;
    const auto of = [](const std::vector<WholeTensor>& tensors, Divided divided,
                       std::initializer_list<plan::TensorRole> roles) {
      return payloads(tensors, divided, roles);
    };
    q_ = of(division.forward, Divided::rows, {query});
    kv_ = of(division.forward, Divided::keys, {key, value});
    results_ = results_of(division);
    backward_rows_ = of(division.backward, Divided::rows, {query, cotangent, saved});
    backward_kv_ = of(division.backward, Divided::keys, {key, value});
    dq_ = of(division.backward, Divided::rows, {gradient});
    dkv_ = of(division.backward, Divided::keys, {gradient});
    look_at_teams();
  }

  void fill(int rank) {
    Program& program = division_.ranks[static_cast<std::size_t>(rank)];
    const auto stages = static_cast<std::size_t>(stages_);
    program.inputs.assign(stages, {});
    program.backward_inputs.assign(stages, {});
    program.results = program.gradients = {};
    for (int peer = 0; peer < static_cast<int>(division_.ranks.size()); ++peer) {
      if (peer == rank) continue;
      Program& other = division_.ranks[static_cast<std::size_t>(peer)];
      for (std::size_t stage = 0; stage < stages; ++stage) fetch(program, other, stage);
      give(program, other);
    }
  }

 private:
  void look_at_teams() {
    Needs once;
    for (int team = 0; team < division_.teams(); ++team) {
      const Program& program =
          division_.ranks[static_cast<std::size_t>(team * division_.groups_of_heads)];
      Needs all;
      std::vector<Needs>& fetched = fetched_.emplace_back();
      for (int stage = 0; stage < stages_; ++stage) {
        const Needs needs = needs_of(program, stage, stage);
        fetched.push_back({rest(needs.rows, all.rows), rest(needs.keys, all.keys)});
        all.rows = both(all.rows, needs.rows);
        all.keys = both(all.keys, needs.keys);
      }
      several_.rows = both(several_.rows, common(once.rows, all.rows));
      several_.keys = both(several_.keys, common(once.keys, all.keys));
      once.rows = both(once.rows, all.rows);
      once.keys = both(once.keys, all.keys);
      made_.push_back(std::move(all));
    }
  }

  std::size_t team_of(const Program& program) const {
    return static_cast<std::size_t>(program.rank / division_.groups_of_heads);
  }

  void fetch(Program& program, const Program& other, std::size_t stage) const {
    Exchange &inputs = program.inputs[stage], &backward = program.backward_inputs[stage];
    const auto move = [&](std::vector<Message> Exchange::*way, const Program& to,
                          const Program& from) {
      const Needs& needs = fetched_[team_of(to)][stage];
      const Intervals rows = common(needs.rows, from.rows), keys = common(needs.keys, from.keys);
      add(inputs.*way, other, to, Divided::rows, q_, rows);
      add(inputs.*way, other, to, Divided::keys, kv_, keys);
      add(backward.*way, other, to, Divided::rows, backward_rows_, rows);
      add(backward.*way, other, to, Divided::keys, backward_kv_, keys);
    };
    move(&Exchange::receives, program, other);
    move(&Exchange::sends, other, program);
  }

  void give(Program& program, const Program& other) const {
    const auto move = [&](std::vector<Message> Exchange::*way, const Program& from,
                          const Program& to) {
      const Needs& made = made_[team_of(from)];
      const Intervals rows = common(made.rows, to.rows), keys = common(made.keys, to.keys);
      const bool part_rows = !common(rows, several_.rows).empty();
      const bool part_keys = !common(keys, several_.keys).empty();
      add(program.results.*way, other, from, Divided::rows, sent_as(results_, part_rows), rows);
      add(program.gradients.*way, other, from, Divided::rows, sent_as(dq_, part_rows), rows);
      add(program.gradients.*way, other, from, Divided::keys, sent_as(dkv_, part_keys), keys);
    };
    move(&Exchange::sends, program, other);
    move(&Exchange::receives, other, program);
  }

  static Payloads sent_as(Payloads payloads, bool part) {
    for (Payload& payload : payloads) payload.dtype = part ? DType::f32 : payload.dtype;
    return payloads;
  }

  static void add(std::vector<Message>& messages, const Program& peer, const Program& computing,
                  Divided of, const Payloads& payloads, const Intervals& indices) {
    if (payloads.empty() || indices.empty()) return;
    messages.push_back({peer.rank, of, payloads, computing.key_heads, indices});
  }

  Division& division_;
  const int stages_;
  Payloads q_, kv_, results_, backward_rows_, backward_kv_, dq_, dkv_;
  std::vector<std::vector<Needs>> fetched_;  // by team and stage
  std::vector<Needs> made_;                  // by team
  Needs several_;                            // what several teams make
};

}  // namespace

Interval Division::key_heads_of(int rank) const {
  const std::int64_t heads = key_heads / groups_of_heads;
  const std::int64_t group = rank % groups_of_heads;
  return {group * heads, (group + 1) * heads};
}

int Division::stages() const {
  int last = 0;
  for (const Program& program : ranks) {
    for (const Part& part : program.parts) last = std::max(last, part.stage);
  }
  return last + 1;
}

const Carried* find_carried(std::string_view name) {
  const auto* found = std::ranges::find(kCarried, name, &Carried::name);
  return found == std::end(kCarried) ? nullptr : found;
}

std::int64_t size_of(Width width, const Division& division) {
  if (width == Width::one) return 1;
  return width == Width::qk ? division.width_qk : division.width_v;
}

Interval heads_of(Divided of, Interval key_heads, const Division& division) {
  const std::int64_t group = of == Divided::rows ? division.query_heads / division.key_heads : 1;
  return {key_heads.begin * group, key_heads.end * group};
}

std::vector<Payload> results_of(const Division& division) {
  using enum plan::TensorRole;
  Payloads results = payloads(division.forward, Divided::rows, {output, stats});
  for (const auto& [sum, max] :
       {std::pair("sum_exp", "max"), std::pair("sum_exp_with_sink", "max_with_sink")}) {
    if (has(results, sum) && !has(results, max)) results.push_back({max, DType::f32});
  }
  return results;
}

std::int64_t bytes_of(const Message& message, const Division& division) {
  const std::int64_t heads = heads_of(message.of, message.key_heads, division).size();
  std::int64_t bytes = 0;
  for (const Payload& payload : message.tensors) {
    const Carried* const carried = find_carried(payload.name);
    ATTN_CHECK(carried != nullptr, "not a tensor that is exchanged");
    bytes += division.batches * count(message.indices) * heads * size_of(carried->width, division) *
             static_cast<std::int64_t>(attn::size_of(payload.dtype));
  }
  return bytes;
}

void add_exchanges(Division& division, std::optional<int> rank) {
  Exchanging exchanging(division);
  if (rank) return exchanging.fill(*rank);
  for (const Program& program : division.ranks) exchanging.fill(program.rank);
}

}  // namespace attn::ranks
