// Plan files whose manifests say something else than what they were made with.
#pragma once

#include <string>

#include "runtime/plan/bundle.h"
#include "tests/fuzz/decisions.h"

namespace attn::fuzz {

// The file of these plans, with one manifest changed: values, types and members of its JSON tree,
// shapes as a whole, and what no tree can hold, such as a key that occurs twice. Mostly the
// signature and what else is computed of a program are made to fit again, as an author of bad
// intent would, so that the change gets as far as it can. Checksums always fit.
std::string file_with_changed_manifest(const plan::Bundle& bundle, Decisions& decisions);

}  // namespace attn::fuzz
