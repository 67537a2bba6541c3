#include "tests/fuzz/ranks_use.h"

#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/program_json.h"
#include "tests/fuzz/target.h"

namespace attn::fuzz {
namespace {

// Each message has a peer, and bytes that can be counted.
void look_at(const ranks::Exchange& exchange, const ranks::Division& division) {
  for (const auto* messages : {&exchange.sends, &exchange.receives}) {
    for (const ranks::Message& message : *messages) {
      require(message.peer >= 0 && message.peer < static_cast<int>(division.ranks.size()));
      require(ranks::bytes_of(message, division) > 0);
    }
  }
}

}  // namespace

void use_ranks(std::string_view json) {
  const Result<ranks::Division> division = ranks::parse(json, 0);
  if (!division.ok()) return require(division.error().code == ErrorCode::plan_damaged);
  const ranks::Program& program = division->ranks.front();
  require(program.inputs.size() == static_cast<std::size_t>(division->stages()));
  for (const ranks::Exchange& exchange : program.inputs) look_at(exchange, *division);
  for (const ranks::Exchange& exchange : program.backward_inputs) look_at(exchange, *division);
  look_at(program.results, *division);
  look_at(program.gradients, *division);
  const Result<ranks::Division> again = ranks::parse(ranks::to_json(*division), 0);
  require(again.ok() && *again == *division);
}

}  // namespace attn::fuzz
