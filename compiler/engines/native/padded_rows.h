// Copies of 8-bit q and k whose rows TMA cannot read: rows of 72 bytes are no multiple of 16,
// strides may be any, and pages may be of any size. The kernel that transposes values makes them
// (attn/padded_rows.cuh).
//
//   native.padded_q, native.padded_k   rows of a multiple of 16 elements, those of a head behind
//                                      each other (bhsd), or packed (thd)
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// Errors: unsupported, for rows of 8 bits with bound strides that cannot be read.
Status check_readable(const ir::Attention& attention);

// Whether rows of "q" or "k" are copied.
bool is_padded(const ir::Attention& attention, const std::string& name);

// The attention that the copies are of: q and k are deeper, and dense. And what they are called.
ir::Attention with_padded_rows(const ir::Attention& attention);
std::string padded_name(const std::string& name);

// What the kernel of values has for them: parameters, and statements for the blocks of threads from
// `first` on. Both are empty without copies.
struct PaddedRowsText {
  std::string parameters, statements;
};
PaddedRowsText padded_rows_text(const ir::Attention& attention, std::int64_t first);

// Adds its arguments, and the copies. Returns the number of further blocks of threads.
std::int64_t add_padded_rows(const ir::Attention& attention, std::int64_t threads,
                             plan::Program& program, plan::KernelStep& step,
                             std::vector<plan::KernelArgument>& arguments);

// The bytes that it moves for them.
double bytes_of_padding(const ir::Attention& attention);

}  // namespace attn::engines::native
