// Plans for the stand-ins, for tests that include attn.hpp and therefore no internal headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attn::standin {

struct PlanFile {
  int number = 0;  // plans with different numbers compute different results
  int params = 1;  // "p0", ..
  bool has_table = true;
  int sm = 90;
  int cudnn_version = 91900;
};

// The contents of such a plan file: q bf16 [1,2,4,8], o of the same shape, table f32 [16].
std::string contents_of(const PlanFile& file);

// A plan that takes a schedule (plan::testing::scheduled_program): q bf16 [2,4,3,8] with strides
// [96,8,32,1], k and v [2,2,5,8] with strides [80,8,16,1], o as q, lse f32 [2,4,3], lengths_kv i32
// [2]; params cap f32 and window i32.
std::string contents_of_scheduled();

// A plan of a file with several shapes; it computes the shapes above, whatever its sizes.
struct ShapedPlan {
  std::int64_t keys = 1;  // Skv; the others are those of q, Hkv = 2 and Dv = 8
  bool pads = true;       // pads B, Sq and Skv
  int sm = 90;
  int cudnn_version = 91900;
};
std::string contents_of_shapes(const std::vector<ShapedPlan>& plans);

// The expected bytes of o, for this q and table and all params equal to `value`.
std::string expected_o(const PlanFile& file, const std::string& q, const std::string& table,
                       float value);

}  // namespace attn::standin
