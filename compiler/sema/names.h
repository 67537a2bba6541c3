// The names the language itself has, and what a name nobody defined was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::sema {

// Names that always have a value in some expression: score, b, h, q_idx, kv_idx, q_raw, inf.
std::span<const std::string_view> bound_names();
// B, Hq, Hkv, Sq, Skv, D, Dqk, Dv.
std::span<const std::string_view> dimension_names();
// Tensors and scalars every attention has by these names at run time: q, k, v, o, lse, ...
std::span<const std::string_view> run_time_names();
// q, k and v: what may have a gradient besides learned tensors.
std::span<const std::string_view> input_names();
// Clauses of the language that are not built yet.
std::span<const std::string_view> unbuilt_clauses();
std::span<const std::string_view> built_clauses();

bool is_bound_name(std::string_view name);
bool is_dimension_name(std::string_view name);
bool contains(std::span<const std::string_view> names, std::string_view name);

// "did you mean `window`?", or what the name is here when another system calls it so ("the query
// index is `q_idx`"), or "".
std::string suggestion(std::string_view name, std::span<const std::string_view> candidates);
// The same where the name of a dimension or of a function stands.
std::string dimension_suggestion(std::string_view name,
                                 std::span<const std::string_view> candidates);
std::string function_suggestion(std::string_view name,
                                std::span<const std::string_view> candidates);

// What a type is called here that other systems call `name` ("float32" -> "f32"), or "".
std::string_view type_elsewhere(std::string_view name);

}  // namespace attn::sema
