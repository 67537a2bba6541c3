#include "compiler/sharding/rank_program.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace attn::sharding {
namespace {

using ir::Dim;
using Names = std::span<const std::string_view>;

constexpr Carried kCarried[] = {{"q", true, Dim::Dqk},
                                {"k", false, Dim::Dqk},
                                {"v", false, Dim::Dv},
                                {"o", true, Dim::Dv},
                                {"do", true, Dim::Dv},
                                {"dq", true, Dim::Dqk},
                                {"dk", false, Dim::Dqk},
                                {"dv", false, Dim::Dv},
                                {"lse"},
                                {"max"},
                                {"sum_exp"},
                                {"max_with_sink"},
                                {"sum_exp_with_sink"},
                                {"delta"}};

class Writing {
 public:
  Writing(const Sharding& sharding, const WorkMap& map, const ir::Attention& attention)
      : sharding_(sharding), map_(map), attention_(attention) {}

  std::vector<RankProgram> run() {
    begin();
    for (RankProgram& program : programs_) {
      for (int stage = 0; stage < sharding_.stages(); ++stage) write_inputs(program, stage);
      write_results(program);
    }
    return std::move(programs_);
  }

 private:
  static auto of_stage(std::vector<Exchange> RankProgram::*list, std::size_t stage) {
    return [list, stage](RankProgram& of) -> Exchange& { return (of.*list)[stage]; };
  }

  void begin() {
    programs_.resize(static_cast<std::size_t>(sharding_.ranks));
    std::vector<Part> parts;
    for (int rank = 0; rank < sharding_.ranks; ++rank) {
      RankProgram& program = programs_[static_cast<std::size_t>(rank)];
      if (rank % sharding_.groups == 0)
        parts = parts_of(sharding_, sharding_.team_of(rank), map_, attention_.sink.has_value());
      const auto stages = static_cast<std::size_t>(sharding_.stages());
      program = {rank,
                 sharding_.key_heads(rank, attention_),
                 sharding_.rows.of(rank),
                 sharding_.keys.of(rank),
                 parts,
                 std::vector<Exchange>(stages),
                 std::vector<Exchange>(stages),
                 {},
                 {}};
    }
  }

  // What the stage's parts need and neither is at home nor arrived in a stage before.
  void write_inputs(RankProgram& program, int stage) {
    Intervals rows = program.rows, keys = program.keys, wanted_rows, wanted_keys;
    for (const Part& part : program.parts) {
      if (part.stage > stage) continue;
      (part.stage < stage ? rows : wanted_rows) =
          both(part.stage < stage ? rows : wanted_rows, part.rows);
      (part.stage < stage ? keys : wanted_keys) =
          both(part.stage < stage ? keys : wanted_keys, part.keys);
    }
    rows = rest(wanted_rows, rows), keys = rest(wanted_keys, keys);
    const auto at = static_cast<std::size_t>(stage);
    fetch(program, rows, kInputsOfRows, &RankProgram::rows, of_stage(&RankProgram::inputs, at));
    fetch(program, keys, kInputsOfKeys, &RankProgram::keys, of_stage(&RankProgram::inputs, at));
    const auto backward = of_stage(&RankProgram::backward_inputs, at);
    fetch(program, rows, backward_inputs_of_rows(attention_), &RankProgram::rows, backward);
    fetch(program, keys, kInputsOfKeys, &RankProgram::keys, backward);
  }

  void write_results(RankProgram& program) {
    Intervals rows, keys;
    for (const Part& part : program.parts)
      rows = both(rows, part.rows), keys = both(keys, part.keys);
    const auto results = [](RankProgram& of) -> Exchange& { return of.results; };
    const auto gradients = [](RankProgram& of) -> Exchange& { return of.gradients; };
    give(program, rows, results_of_rows(attention_), &RankProgram::rows, results);
    give(program, rows, kGradientsOfRows, &RankProgram::rows, gradients);
    give(program, keys, kGradientsOfKeys, &RankProgram::keys, gradients);
  }

  // From homes to the program's rank.
  template <typename In>
  void fetch(RankProgram& to, const Intervals& wanted, Names tensors, Intervals RankProgram::*home,
             const In& exchange) {
    if (wanted.empty()) return;
    for (RankProgram& from : programs_)
      add(from, to, common(wanted, from.*home), tensors, to.key_heads, exchange);
  }

  // From the program's rank to homes.
  template <typename In>
  void give(RankProgram& from, const Intervals& made, Names tensors, Intervals RankProgram::*home,
            const In& exchange) {
    for (RankProgram& to : programs_)
      add(from, to, common(made, to.*home), tensors, from.key_heads, exchange);
  }

  template <typename In>
  static void add(RankProgram& from, RankProgram& to, const Intervals& indices, Names tensors,
                  Interval key_heads, const In& exchange) {
    if (from.rank == to.rank || indices.empty()) return;
    const std::vector<std::string_view> names(tensors.begin(), tensors.end());
    exchange(from).sends.push_back({to.rank, names, key_heads, indices});
    exchange(to).receives.push_back({from.rank, names, key_heads, indices});
  }

  const Sharding& sharding_;
  const WorkMap& map_;
  const ir::Attention& attention_;
  std::vector<RankProgram> programs_;
};

void sort(Exchange& exchange) {
  std::ranges::stable_sort(exchange.sends, {}, &Message::peer);
  std::ranges::stable_sort(exchange.receives, {}, &Message::peer);
}

}  // namespace

const Carried& carried(std::string_view name) {
  const auto* found = std::ranges::find(kCarried, name, &Carried::name);
  ATTN_CHECK(found != std::end(kCarried), "not a tensor that is exchanged");
  return *found;
}

std::vector<std::string_view> backward_inputs_of_rows(const ir::Attention& attention) {
  std::vector<std::string_view> names = {"q", "do"};
  if (!attention.is_sigmoid()) names.insert(names.end(), {"lse", "delta"});
  return names;
}

std::vector<std::string_view> results_of_rows(const ir::Attention& attention) {
  std::vector<std::string_view> names = {"o"};
  if (attention.is_sigmoid()) return names;
  names.push_back("lse");
  for (const ir::Output& output : ir::kOutputs) {
    const bool merges = output.name != "o" && output.name != "lse" && !ir::is_amax(output.name);
    if (merges && attention.*output.wanted) names.push_back(output.name);
  }
  // Sums of exponentials are relative to a maximum.
  for (const auto& [sum, max] :
       {std::pair("sum_exp", "max"), std::pair("sum_exp_with_sink", "max_with_sink")}) {
    const bool has_sum = std::ranges::find(names, std::string_view(sum)) != names.end();
    const bool has_max = std::ranges::find(names, std::string_view(max)) != names.end();
    if (has_sum && !has_max) names.push_back(max);
  }
  return names;
}

std::vector<RankProgram> rank_programs(const Sharding& sharding, const WorkMap& map,
                                       const ir::Attention& attention) {
  std::vector<RankProgram> programs = Writing(sharding, map, attention).run();
  for (RankProgram& program : programs) {
    for (Exchange& exchange : program.inputs) sort(exchange);
    for (Exchange& exchange : program.backward_inputs) sort(exchange);
    sort(program.results);
    sort(program.gradients);
  }
  return programs;
}

}  // namespace attn::sharding
