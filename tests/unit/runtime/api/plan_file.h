// Plans for the stand-ins, for tests that include attn.hpp and so nothing of the house.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attn::standin {

struct PlanFile {
  int number = 0;  // other numbers compute otherwise
  int params = 1;  // "p0", ..
  bool has_table = true;
  int sm = 90;
  int cudnn_version = 91900;
};

// What such a plan file has in it: q bf16 [1,2,4,8], o of the same form, table f32 [16].
std::string contents_of(const PlanFile& file);

// One of a file of several shapes: what it computes has the form above, whatever its sizes are.
struct ShapedPlan {
  std::int64_t keys = 1;  // Skv; the others are those of q, and Hkv = 2 and Dv = 8
  bool pads = true;       // B, Sq and Skv
  int sm = 90;
  int cudnn_version = 91900;
};
std::string contents_of_shapes(const std::vector<ShapedPlan>& plans);

// The bytes that o must have; q and table are those given, all params `value`.
std::string expected_o(const PlanFile& file, const std::string& q, const std::string& table,
                       float value);

}  // namespace attn::standin
