// Plans for the stand-ins, for tests that include attn.hpp and so nothing of the house.
#pragma once

#include <string>

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

// The bytes that o must have; q and table are those given, all params `value`.
std::string expected_o(const PlanFile& file, const std::string& q, const std::string& table,
                       float value);

}  // namespace attn::standin
