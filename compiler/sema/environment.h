// Sizes and constants of a spec under its bindings: what dimension arithmetic reads.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/bindings.h"
#include "compiler/sema/constants.h"

namespace attn::sema {

struct Environment {
  std::map<std::string, Known, std::less<>> parameters;  // value or poisoned
  ir::Dims dims;
  // Sizes of the dimensions, by the name they are listed with, that have a set of them and are not
  // bound.
  std::map<std::string, std::vector<std::int64_t>> sets;
  // The dimension `D` stands for where it is read: Dqk, unless Dqk and Dv differ (then nothing).
  std::optional<ir::Dim> head_dim;

  std::set<std::string, std::less<>> used;  // parameters that some constant read
  // What `dims` lists and is not a dimension. It was reported there, so nothing else reports it.
  std::set<std::string, std::less<>> unknown;

  // Names in constants: parameters and dimensions. Reports any other.
  Known lookup(const std::string& name, support::Span span, diag::Sink& sink);
};

// The sizes that a binding lists, "1024,2048", each once; a comma may follow the last.
std::vector<std::string> listed_sizes(const std::string& text);

// Parameters, then dimensions; a binding replaces what the spec says. Unlisted dimensions are open,
// but Hkv is then Hq, Skv is Sq and Dv is Dqk. Reports everything that is wrong with either.
Environment make_environment(const ast::Spec& spec, const Bindings& bindings, diag::Sink& sink);

}  // namespace attn::sema
