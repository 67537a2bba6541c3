#include "runtime/plan/program_members.h"

namespace attn::plan {

std::string to_json(const Program& program) { return json::json_of(program).dump(); }

Result<Program> program_from_json(std::string_view text) {
  return json::parse_members<Program>(text);
}

}  // namespace attn::plan
