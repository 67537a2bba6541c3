// Head dimensions that are no multiple of 8, which cuDNN refuses: its kernel works on copies that
// are padded with zeros, which change no score, and the part of o that exists is copied back.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/graph_builder.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Whether "q", "k", "v" or "o" is read or written through a copy.
bool is_staged(const ir::Attention& attention, std::string_view name);
// The copy: an internal tensor, packed.
std::string staged_name(std::string_view name);
Dims4 staged_dims(const ir::Attention& attention, std::string_view name);

struct Staging {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> before, after;  // the graph
};

// Errors: unsupported for a tensor that is thd or paged.
Result<Staging> staging(const ir::Attention& attention);

}  // namespace attn::lowering
