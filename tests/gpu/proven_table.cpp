// proven_table VERIFIED...: reads outputs of `attnc verify --format json` and prints the table of
// tests/gpu/proven.txt: for each combination of an operation and its operands in the specs' graphs
// (including the backward if verify compared gradients), `right` if a spec with it agreed with the
// reference, `suspect` if none did, and the first such spec.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "compiler/driver/driver.h"
#include "tests/support/combinations.h"

namespace attn::testing {
namespace {

using Json = nlohmann::json;

struct Proof {
  bool right = false;
  std::string by;
};
using Table = std::map<std::string, Proof>;

std::string case_name(const Json& one) {
  std::string name = one["spec"];
  for (const auto& [dim, size] : one["bindings"].items()) {
    name += fmt::format(" {}={}", dim, size.get<std::string>());
  }
  return name;
}

Result<plan::Program> lowered(const Json& one, plan::Direction direction) {
  ATTN_ASSIGN(const support::Source source, support::Source::read(one["spec"]));
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, one["bindings"].get<sema::Bindings>(), sink);
  if (!attention) return {ErrorCode::invalid_spec, diag::to_text(sink)};
  return driver::lower(*attention, "cudnn", direction);
}

// Whether verify compared all outputs of the program. Gradients are compared only with --grad.
bool has_all_outputs(const Json& one, const plan::Program& program) {
  const Json compared = one.value("outputs", Json::object());
  return std::ranges::all_of(program.tensors, [&](const plan::TensorInfo& tensor) {
    return !tensor.is_output() || compared.contains(tensor.name);
  });
}

void add_program(const Json& one, const plan::Program& program, Table& table) {
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    for (const std::string& combination : combinations(step->graph)) {
      Proof& proof = table[combination];
      if (!proof.by.empty() && (proof.right || !one["ok"].get<bool>())) continue;
      proof = {one["ok"], case_name(one)};
    }
  }
}

// Skips specs that were refused or could not be run.
void add_case(const Json& one, Table& table) {
  if (one.contains("error")) return;
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
    const Result<plan::Program> program = lowered(one, direction);
    if (program.ok() && has_all_outputs(one, *program)) add_program(one, *program, table);
  }
}

int run(int count, char** paths) {
  Table table;
  for (int i = 0; i < count; ++i) {
    std::ifstream file(paths[i]);
    const Json verified = Json::parse(file, nullptr, false);
    if (verified.is_discarded()) {
      fmt::print(stderr, "proven_table: {} is not an output of verify\n", paths[i]);
      return 1;
    }
    for (const Json& one : verified["cases"]) add_case(one, table);
  }
  for (const auto& [combination, proof] : table) {
    fmt::print("{:<7} | {} | {}\n", proof.right ? "right" : "suspect", combination, proof.by);
  }
  return table.empty() ? 1 : 0;
}

}  // namespace
}  // namespace attn::testing

int main(int argc, char** argv) { return attn::testing::run(argc - 1, argv + 1); }
