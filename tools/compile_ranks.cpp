#include "tools/compile_ranks.h"

#include <fmt/format.h>

#include "runtime/plan/memory.h"
#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/program_json.h"
#include "tools/ranks.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

using Way = std::vector<ranks::Message> ranks::Exchange::*;

std::int64_t bytes_of(const ranks::Exchange& exchange, Way way, const ranks::Division& division) {
  std::int64_t bytes = 0;
  for (const ranks::Message& message : exchange.*way) bytes += ranks::bytes_of(message, division);
  return bytes;
}

// What `program` receives or sends in one direction.
std::string exchanged_text(const ranks::Program& program, Way way,
                           const ranks::Division& division) {
  const bool backward = division.forward.empty();
  std::int64_t bytes = bytes_of(backward ? program.gradients : program.results, way, division);
  for (const ranks::Exchange& exchange : backward ? program.backward_inputs : program.inputs)
    bytes += bytes_of(exchange, way, division);
  return bytes_text(bytes);
}

}  // namespace

std::string to_text(const CompiledFamily& family, const std::string& path, bool split) {
  const std::size_t last = family.division.ranks.size() - 1;
  std::string text =
      ranks_text(family.division, split ? fmt::format("{} to {}", driver::file_of_rank(path, 0),
                                                      driver::file_of_rank(path, last))
                                        : path);
  using enum Align;
  Table table(
      {{"plan"}, {"direction"}, {"strategy"}, {"predicted ms", right}, {"total workspace", right}});
  for (const driver::Compiled& compiled : family.plans) {
    const plan::Plan& plan = compiled.plan;
    table.add({plan.spec_name, std::string(to_string(plan::direction_of(plan.program))),
               plan.strategy,
               plan.choice.empty() ? "" : fmt::format("{:.3f}", plan.choice.front().predicted_ms),
               bytes_text(plan::memory_of(plan).total())});
  }
  return text + "\n" + table.to_text("  ") +
         fmt::format("  runs on {}\n", runs_on_text(family.plans.front().plan.target.sm));
}

Json to_json(const CompiledFamily& family, const std::string& path, bool split) {
  Json plans = Json::array();
  for (const driver::Compiled& compiled : family.plans) {
    const plan::Plan& plan = compiled.plan;
    plans.push_back({{"name", plan.spec_name},
                     {"direction", to_string(plan::direction_of(plan.program))},
                     {"decision", decision_json(plan)}});
  }
  Json files = Json::array();
  if (split) {
    for (std::size_t rank = 0; rank < family.division.ranks.size(); ++rank)
      files.push_back(driver::file_of_rank(path, rank));
  } else {
    files.push_back(path);
  }
  Json json = {{"plan", path}, {"files", std::move(files)}};
  json["ranks"] = ranks::json_of(family.division);
  json["plans"] = std::move(plans);
  return json;
}

std::string ranks_text(const ranks::Division& division, const std::string& path) {
  const std::string only =
      division.only < 0 ? "" : fmt::format(", with the plans of rank {}", division.only);
  std::string text = fmt::format("{}: `{}` on {}{}\n\n", path, shown(division.name),
                                 shown(division.sharding), only);
  using enum Align;
  Table table({{"rank", right},
               {"rows"},
               {"keys"},
               {"key heads"},
               {"parts", right},
               {"receives", right},
               {"sends", right}});
  ranks::Division exchanging = division;
  for (ranks::Program& program : exchanging.ranks) {
    ranks::add_exchanges(exchanging, program.rank);
    table.add({std::to_string(program.rank), home_text(program.rows), home_text(program.keys),
               ranks::to_text({program.key_heads}), std::to_string(program.parts.size()),
               exchanged_text(program, &ranks::Exchange::receives, division),
               exchanged_text(program, &ranks::Exchange::sends, division)});
    program.inputs = program.backward_inputs = {};
    program.results = program.gradients = {};
  }
  return text + table.to_text("  ") +
         fmt::format("  rows, keys: which the rank has; receives, sends: in the {}\n",
                     division.forward.empty() ? "backward" : "forward");
}

}  // namespace attn::tools
