// Page tables as cuDNN may read them.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Lets the cuDNN step of a program read copies of the page tables that the caller binds, in which
// entries past a sequence's last key repeat its last page (page 0 if it has no keys), because the
// caller's may be any numbers. Nothing without lengths of keys: then all entries are in use.
void keep_to_own_pages(const ir::Attention& attention, plan::Program& program);

}  // namespace attn::engines
