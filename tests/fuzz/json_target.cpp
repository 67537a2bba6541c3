// Fuzzes the JSON of graphs and programs: parsing gives an invalid_argument error or a value that
// round-trips. Parsed values, valid or not, can be validated, listed and hashed.
#include "tests/fuzz/target.h"
#include "tests/unit/runtime/plan/program_text.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::fuzz {
namespace {

void try_graph(std::string_view text) {
  const Result<graph::BackendGraph> graph = graph::from_json(text);
  if (!graph.ok()) return require(graph.error().code == ErrorCode::invalid_argument);
  const Result<graph::BackendGraph> again = graph::from_json(graph::to_json(*graph));
  require(again.ok() && *again == *graph);
  require(graph::canonical_text(*again) == graph::canonical_text(*graph));
  require(graph::to_text(*again) == graph::to_text(*graph));
  require(graph::validate(*again).ok() == graph::validate(*graph).ok());
}

void try_program(std::string_view text) {
  const Result<plan::Program> program = plan::program_from_json(text);
  if (!program.ok()) return require(program.error().code == ErrorCode::invalid_argument);
  const std::string json = plan::to_json(*program);
  const Result<plan::Program> again = plan::program_from_json(json);
  // Compared as text, since a NaN constant does not equal itself.
  require(again.ok() && plan::to_json(*again) == json);
  require(plan::canonical_text(*again) == plan::canonical_text(*program));
  require(plan::to_text(*again) == plan::to_text(*program));
  require(plan::validate(*again).ok() == plan::validate(*program).ok());
}

}  // namespace

std::vector<std::string> seeds() {
  plan::testing::Random random(32);
  std::vector<std::string> all = {graph::to_json(graph::testing::sample_graph()),
                                  plan::to_json(plan::testing::sample_program())};
  for (int i = 0; i < 4; ++i) {
    all.push_back(graph::to_json(graph::testing::random_graph(random)));
    all.push_back(plan::to_json(plan::testing::random_program(random)));
  }
  return all;
}

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  attn::fuzz::try_graph(text);
  attn::fuzz::try_program(text);
  return 0;
}
