// What the engine `native` keeps of an attention that is planned.
#pragma once

#include <optional>
#include <utility>

#include "compiler/engines/native/programs.h"
#include "compiler/engines/shared/subject.h"
#include "compiler/ir/attention.h"
#include "compiler/rewrite/hoist.h"

namespace attn::engines {

// Operations on each score that are worth a table, which all heads that see the same read.
inline constexpr double kWorthTable = 64;
inline constexpr double kMostTableBytes = 0x1p30;

// Replaces the expensive terms of masks that read tensors by one mask that reads a table. The table
// is a derived tensor of conditions over the axes that these terms depend on; the other terms stay.
// nullopt if these terms take less than kWorthTable operations together or do not depend on both
// row and column, or if the table would take too much memory. Dimensions must be bound.
std::optional<rewrite::Hoisted> with_mask_table(const ir::Attention& attention);

// The attention's programs. They live as long as the subject.
NativePrograms& native_programs(Subject& subject);

// The attention with its large masks in a table, and how the table is made.
struct Tabled {
  Tabled(rewrite::Hoisted made, const target::Context& context)
      : hoisted(std::move(made)), subject(hoisted.attention, context) {}

  const rewrite::Hoisted hoisted;
  Subject subject;
};

// Null if no mask is worth a table. It lives as long as the subject.
Tabled* tabled(Subject& subject);

}  // namespace attn::engines
