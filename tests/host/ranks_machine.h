// Ranks on the host: schedules of the runtime, whose kernels run as the host compiles them, with
// memory of each rank's own. Parts are computed by the reference. All tensors of floats are f32.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/sharding/rank_program.h"
#include "runtime/ranks/schedule.h"
#include "tests/unit/compiler/sharding/equality.h"

namespace attn::testing {

struct RanksOnHost {
  const ir::Attention& attention;
  const sharding::RankPrograms& programs;
  const sharding::testing::Expected& expected;
  bool other_strides = false;  // heads before rows, with gaps, instead of those proposed
};

// The results of all ranks of a direction, as whole tensors: o and statistics; or dq, dk, dv and
// d_NAME. Fails the test on errors.
std::map<std::string, io::HostTensor> run_on_host(const RanksOnHost& ranks,
                                                  plan::Direction direction);

}  // namespace attn::testing
