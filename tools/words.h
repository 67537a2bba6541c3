// Human-readable formatting of sizes, counts, tensors and programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/text.h"
#include "runtime/plan/memory.h"
#include "runtime/plan/plan.h"

namespace attn::tools {

std::string bytes_text(std::int64_t bytes);  // "16 B", "87.3 kB", "128.0 MB": powers of 1000
// "35.2 GB (cuDNN 256 B, intermediates 35.2 GB)": the total, and its parts if several are nonzero.
std::string memory_text(const plan::Memory& memory);
std::string cudnn_text(std::int64_t version);  // "9.19.0", "none" for 0
std::string runs_on_text(std::int64_t sm);     // "compute capability 9.0: H200, H100"
std::string flops_text(double flops);          // "1.10 TFLOP"
std::string percent_text(double share);        // 0.1234 -> "12.3 %"
using support::dims_text;                      // "[2,8,128,256]"
std::string knobs_text(const std::vector<plan::Knob>& knobs);  // "24=3 27=1" (type=value), "none"

// Untrusted text, such as names from a plan file, made safe for a terminal: control characters,
// bidirectional controls and bytes that are not UTF-8 are escaped as \xNN.
std::string shown(std::string_view text);
// The same of an expression, with `...` instead of what one line has no room for.
std::string shown_beginning(std::string_view text);
// The same, but line ends and tabs are kept.
std::string shown_lines(std::string_view text);
// shown() of a text on one line, with each run of white space as one space.
std::string squeezed(std::string_view text);

// `head`, then the text, in lines of at most `width` columns where it has spaces; later lines begin
// below the text. Ends with a new line.
std::string wrapped(std::string_view head, std::string_view text, std::size_t width);

// A table of the tensors to bind: name, role, dtype, dims, strides, alignment; then the params.
std::string tensors_text(const plan::Program& program);

// A table of the internal tensors: name, dtype, dims, bytes, when each is computed, and its
// expression or the cuDNN step that writes it. Empty if there are none.
std::string derived_text(const plan::Program& program);

}  // namespace attn::tools
