// Plan files with modified manifests.
#pragma once

#include <string>

#include "runtime/plan/bundle.h"
#include "tests/fuzz/decisions.h"

namespace attn::fuzz {

// Serializes the plans with one manifest mutated: values, types and members of its JSON tree, whole
// shapes, and things outside a tree, such as duplicate keys. Usually recomputes the signature and
// other derived fields, as an attacker would, so that the mutation gets past the first checks.
// Checksums are always valid.
std::string file_with_changed_manifest(const plan::Bundle& bundle, Decisions& decisions);

}  // namespace attn::fuzz
