#include "tests/fuzz/target.h"

namespace attn::fuzz {

// Replacement values for JSON and binary fields.
const std::vector<std::string>& words() {
  static const std::vector<std::string> all = {"0",
                                               "-1",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "18446744073709551615",
                                               "1e308",
                                               "null",
                                               "true",
                                               "[]",
                                               "{}",
                                               "\"\"",
                                               "\"inf\"",
                                               "\"nan\"",
                                               "{\"hex\":\"ff\"}",
                                               "\"f32\"",
                                               "\"i32\"",
                                               "\"bool\"",
                                               "\"device\"",
                                               "\"host_scalar\"",
                                               "\"matmul\"",
                                               "\"identity\"",
                                               ",",
                                               "[",
                                               "]",
                                               "}",
                                               std::string(4, '\0'),
                                               std::string(8, '\xFF'),
                                               std::string("\x01\0\0\0", 4)};
  return all;
}

}  // namespace attn::fuzz
