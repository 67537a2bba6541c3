// Keys and values in pages, as the backward reads them: a step before copies their rows, in 16 bits
// or in 8, as far as lengths say, so that all skeletons read rows that follow each other.
//
//   native.k_rows, native.v_rows   [B, Hkv, Skv, D] of the type of k and v, 0 past the lengths
#pragma once

#include <set>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// Whether k or v is in pages.
bool has_pages(const ir::Attention& attention);

// The attention of the copies: k and v that are in pages follow each other instead (bhsd).
ir::Attention without_pages(ir::Attention attention);

// Adds the controls that the copies read to those that a program uses.
void use_pages(const ir::Attention& paged, std::set<std::string>& used);

// Adds the copies to the program, and lets the step, of without_pages(paged), read them.
void read_pages(const ir::Attention& paged, plan::Program& program, plan::KernelStep& step);

// Bytes that copying moves.
double bytes_of_pages(const ir::Attention& paged);

}  // namespace attn::engines::native
