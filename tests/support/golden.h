// Golden files: compares text with a file in the source tree, or rewrites the file if
// ATTN_UPDATE_GOLDEN=1 is set in the environment.
#pragma once

#include <string>

namespace attn::testing {

// Reports a GoogleTest failure if `actual` differs from the file or the file is missing. `path` is
// relative to the source root. Hashes of included
// kernel files are left out.
void expect_golden(const std::string& path, const std::string& text);

// Compares with the part of a page that is between <!-- NAME: begin (generated) --> and
// <!-- NAME: end -->.
void expect_table(const std::string& path, const std::string& name, const std::string& table);

// Reads a file. Reports a failure and returns "" if it cannot be read.
std::string read_source_file(const std::string& path);

}  // namespace attn::testing
