// What cuDNN may read of pages that the caller binds: entries and values without use are anything.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Errors: unsupported, where results would depend on values past Skv.
Status check_paged_keys(const ir::Attention& attention, const target::Context& context);

// Lets the cuDNN step of a program read copies of the page tables that the caller binds, in which
// entries past a sequence's last key repeat its last page (page 0 if it has no keys), because the
// caller's may be any numbers. Nothing without lengths of keys: then all entries are in use.
// Returns the predicted milliseconds of the copying.
double keep_to_own_pages(const ir::Attention& attention, plan::Program& program,
                         const target::Gpu& gpu);

}  // namespace attn::engines
