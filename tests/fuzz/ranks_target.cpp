// Fuzzes what plan files say of ranks: any text gives an error or a valid division (ranks_use.h).
#include "runtime/ranks/program_json.h"
#include "tests/fuzz/ranks_use.h"
#include "tests/fuzz/target.h"
#include "tests/unit/runtime/ranks/sample_division.h"

namespace attn::fuzz {

std::vector<std::string> seeds() {
  ranks::Division forward = ranks::testing::sample_division();
  forward.backward.clear();
  for (ranks::Program& program : forward.ranks) {
    for (ranks::Part& part : program.parts) part.backward.clear();
  }
  return {ranks::to_json(ranks::testing::sample_division()), ranks::to_json(forward)};
}

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attn::fuzz::use_ranks({reinterpret_cast<const char*>(data), size});
  return 0;
}
