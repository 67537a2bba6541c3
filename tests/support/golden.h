// Golden files: text compared with a file in the source tree. With ATTN_UPDATE_GOLDEN=1 in the
// environment the file is rewritten instead.
#pragma once

#include <string>

namespace attn::testing {

// Reports a GoogleTest failure with both texts when `actual` differs from the file's contents or
// the file is missing. `path` is relative to the source root.
void expect_golden(const std::string& path, const std::string& actual);

// The whole file; reports a failure and returns "" when it cannot be read.
std::string read_source_file(const std::string& path);

}  // namespace attn::testing
