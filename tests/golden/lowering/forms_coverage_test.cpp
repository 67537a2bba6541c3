// Every form that lowering may emit must occur in a spec of tests/gpu/forms, which are compared
// with the reference on a GPU.
#include <gtest/gtest.h>

#include <set>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/planner/search.h"
#include "tests/golden/lowering/specs.h"

namespace attn::testing {
namespace {

std::set<engines::Form> forms_of(const plan::Program& program) {
  std::set<engines::Form> forms;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    for (const graph::Node& node : step->graph.nodes) {
      if (const auto* pointwise = std::get_if<graph::Pointwise>(&node)) {
        forms.insert({pointwise->mode, pointwise->compute, step->graph.find(pointwise->y)->dtype});
      }
    }
  }
  return forms;
}

TEST(FormsCoverage, EveryFormHasASpecThatIsRunOnADevice) {
  std::set<engines::Form> covered;
  for (const auto& file : spec_files("tests/gpu/forms")) {
    covered.merge(forms_of(lowered_spec(file)));
    // Forms that a forward reads from tables instead.
    const auto backward = try_lower(file, "cudnn", plan::Direction::backward);
    if (backward.ok()) covered.merge(forms_of(*backward));
  }
  for (const engines::Form& form : engines::proven_forms()) {
    EXPECT_TRUE(covered.contains(form))
        << graph::to_string(form.mode) << " computed in " << to_string(form.compute) << " into "
        << to_string(form.result);
  }
}

}  // namespace
}  // namespace attn::testing
