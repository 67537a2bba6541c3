// The JSON of programs, and their canonical text: that of their members, but for graphs.
#include <algorithm>

#include "runtime/graph/canonical.h"
#include "runtime/plan/program_members.h"

namespace attn::plan {

// The graph with other numbers for its tensors, and the operands in the order of these.
void write_canonical(json::Writer& writer, const CudnnStep& step) {
  const graph::Canonical canonical = graph::canonicalize(step.graph);
  std::vector<Operand> operands = step.operands;
  for (Operand& operand : operands) {
    const auto found = canonical.index.find(operand.uid);
    // A uid missing in the graph (validate rejects it) sorts after all others.
    const bool known = found != canonical.index.end();
    operand.uid = static_cast<graph::Uid>(known ? found->second : canonical.index.size());
  }
  std::ranges::stable_sort(operands, {}, &Operand::uid);
  writer.kind("step", "cudnn");
  writer("graph", canonical.graph);
  writer("operands", operands);
  writer.optional("turns", step.turns, 1);
}

std::string canonical_text(const Program& program) { return json::canonical_text(program); }

std::string to_json(const Program& program) { return json::json_of(program).dump(); }

Result<Program> program_from_json(std::string_view text) {
  return json::parse_members<Program>(text);
}

}  // namespace attn::plan
