// Sizes and constants of a spec with its bindings, for compile-time arithmetic.
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
  // The sets of sizes of unbound dimensions, by the name of their entry.
  std::map<std::string, std::vector<std::int64_t>> sets;
  // The dimension that `D` means in expressions: Dqk, or nullopt if Dqk and Dv differ.
  std::optional<ir::Dim> head_dim;

  std::set<std::string, std::less<>> used;  // parameters that constants have read
  // Names in `dims` that are not dimensions. Already reported, so uses of them are not.
  std::set<std::string, std::less<>> unknown;

  // The value of a parameter or dimension in a constant. Reports any other name.
  Known value_of(const std::string& name, support::Span span, diag::Sink& sink) const;
  // The same, and records that a constant reads it.
  Known lookup(const std::string& name, support::Span span, diag::Sink& sink);
};

// The dimensions that a name sets: "D" means both head dimensions.
std::vector<ir::Dim> dims_named(std::string_view name);

// The sizes in a binding such as "1024,2048", without duplicates; a trailing comma is allowed.
std::vector<std::string> listed_sizes(const std::string& text);

// Evaluates parameters, then dimensions; bindings override the spec. Unlisted dimensions are open,
// but Hkv defaults to Hq, Skv to Sq and Dv to Dqk. Reports errors in both.
Environment make_environment(const ast::Spec& spec, const Bindings& bindings, diag::Sink& sink);

}  // namespace attn::sema
