// What predictions rest on: kinds of attentions that were measured, by the table that figures are
// fitted to (bench/fit.py, which writes measured.def), and what a prediction assumes where only a
// call knows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"

namespace attn::planner {

// "few rows", "forward" or "backward", and " of 8 bits".
std::string kind_of(const ir::Attention& attention, const target::Context& context);

// What times depend on besides sizes: "keys in pages", "random dropout", .. of a row of
// measured.def.
std::vector<std::string_view> features_of(const ir::Attention& attention);

// Why the predictions may be further from what is measured than those of the table: another GPU, a
// kind, sizes or features that the table does not have, and values that are assumed. One line each;
// empty: nothing. Dimensions must be bound.
std::vector<std::string> doubts_of(const ir::Attention& attention, const target::Context& context);

}  // namespace attn::planner
