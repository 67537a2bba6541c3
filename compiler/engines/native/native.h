// What the engine `native` keeps of an attention that is planned.
#pragma once

#include <utility>

#include "compiler/engines/native/programs.h"
#include "compiler/engines/shared/subject.h"
#include "compiler/rewrite/hoist.h"

namespace attn::engines {

// The attention's programs. They live as long as the subject.
NativePrograms& native_programs(Subject& subject);

// The attention with its large masks in a table (mask_table.h), and how the table is made.
struct Tabled {
  Tabled(rewrite::Hoisted made, const target::Context& context)
      : hoisted(std::move(made)), subject(hoisted.attention, context) {}

  const rewrite::Hoisted hoisted;
  Subject subject;
};

// Null if no mask is worth a table. It lives as long as the subject.
Tabled* tabled(Subject& subject);

}  // namespace attn::engines
