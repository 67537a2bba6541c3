// The names that the language defines, and suggestions for undefined names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/diag/diagnostics.h"

namespace attn::sema {

// Built-in names of expressions: score, b, h, q_idx, kv_idx, q_raw, inf.
std::span<const std::string_view> bound_names();
// B, Hq, Hkv, Sq, Skv, D, Dqk, Dv.
std::span<const std::string_view> dimension_names();
// The names of tensors and scalars of every attention at run time: q, k, v, o, lse, ...
std::span<const std::string_view> run_time_names();
// q, k and v: the tensors that may have a gradient, besides learned ones.
std::span<const std::string_view> input_names();
// The words that begin a clause of an attention.
std::span<const std::string_view> built_clauses();

bool is_bound_name(std::string_view name);
bool is_dimension_name(std::string_view name);
bool contains(std::span<const std::string_view> names, std::string_view name);

// What to write instead of an unknown name.
struct Suggestion {
  std::string help;         // "did you mean `window`?", or "" if nothing is known
  std::string replacement;  // "window"; "" if it is not one name

  bool empty() const { return help.empty(); }
  // Makes it the help and the fix of a diagnostic, at the span of the name.
  void put(diag::Diagnostic& diagnostic, support::Span name) const;
};
// "did you mean `window`?"; empty if no candidate is close.
Suggestion did_you_mean(std::string_view close);

// Help and fixes for a name, `written` instead of one of `words`, which are few.
void expect_one_of(std::span<const std::string_view> words, std::string_view written,
                   diag::Diagnostic& diagnostic, support::Span name);

// Suggests for an unknown name a close one, or the equivalent of one from another system ("the
// query index is `q_idx`").
Suggestion suggestion(std::string_view name, std::span<const std::string_view> candidates);
// The same for names of outputs, dimensions and functions.
Suggestion output_suggestion(std::string_view name, std::span<const std::string_view> candidates);
Suggestion dimension_suggestion(std::string_view name,
                                std::span<const std::string_view> candidates);
Suggestion function_suggestion(std::string_view name, std::span<const std::string_view> candidates);

// The name of a type that other systems call `name` ("float32" -> "f32"), or "".
std::string_view type_elsewhere(std::string_view name);

}  // namespace attn::sema
