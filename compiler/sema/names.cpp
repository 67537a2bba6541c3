#include "compiler/sema/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/support/text.h"

namespace attn::sema {
namespace {

constexpr std::string_view kBound[] = {"score", "b",   "h", "q_idx", "kv_idx",
                                       "q_raw", "inf", "o", "d_idx"};
constexpr std::string_view kDimensions[] = {"B", "Hq", "Hkv", "Sq", "Skv", "D", "Dqk", "Dv"};
constexpr std::string_view kRunTime[] = {"o_inner",
                                         "q",
                                         "k",
                                         "v",
                                         "o",
                                         "lse",
                                         "max",
                                         "sum_exp",
                                         "max_with_sink",
                                         "sum_exp_with_sink",
                                         "lse_without_sink",
                                         "do",
                                         "dlse",
                                         "dq",
                                         "dk",
                                         "dv",
                                         "lengths_q",
                                         "lengths_kv",
                                         "seed",
                                         "offset",
                                         "page_table",
                                         "page_table_k",
                                         "page_table_v",
                                         "cu_seqlens_q",
                                         "cu_seqlens_kv",
                                         "kv",
                                         "qkv"};
constexpr std::string_view kInputs[] = {"q", "k", "v"};
constexpr std::string_view kBuilt[] = {
    "dims",  "dtype",         "layout",    "tensor",   "learn",   "param",   "let",      "fn",
    "scale", "score",         "mask",      "sink",     "dropout", "lengths", "outputs",  "align",
    "grad",  "deterministic", "normalize", "quantize", "shard",   "weight",  "prologue", "epilogue",
    "gate",  "branch",        "combine",   "values",   "gather"};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// A name in another system, and the help line for it.
struct Elsewhere {
  std::string_view name;
  std::string_view here;
};
constexpr Elsewhere kElsewhere[] = {
    {"q", "the query index is `q_idx`"},        {"k", "the key index is `kv_idx`"},
    {"k_idx", "the key index is `kv_idx`"},     {"kv", "the key index is `kv_idx`"},
    {"batch", "the batch index is `b`"},        {"batch_idx", "the batch index is `b`"},
    {"head", "the head index is `h`"},          {"head_idx", "the head index is `h`"},
    {"head_dim", "the head dimension is `D`"},  {"H", "the dimensions are `Hq` and `Hkv`"},
    {"S", "the dimensions are `Sq` and `Skv`"}, {"s", "the score is `score`"},
    {"i", "the query index is `q_idx`"},        {"j", "the key index is `kv_idx`"},
    {"row", "the query index is `q_idx`"},      {"col", "the key index is `kv_idx`"},
    {"q_pos", "the query index is `q_idx`"},    {"k_pos", "the key index is `kv_idx`"},
    {"kv_pos", "the key index is `kv_idx`"},    {"query_idx", "the query index is `q_idx`"},
    {"key_idx", "the key index is `kv_idx`"},   {"infinity", "it is written `inf`"},
    {"infty", "it is written `inf`"},           {"huge_val", "it is written `inf`"},
    {"flt_max", "a hidden score is `-inf`"},    {"finfo", "a hidden score is `-inf`"},
    {"neg_inf", "it is written `-inf`"},        {"neginf", "it is written `-inf`"},
    {"ninf", "it is written `-inf`"},           {"pi", "write the number: `3.141592653589793`"},
};
constexpr std::string_view kHeadNames = "the query heads are `Hq`, the key heads `Hkv`";
constexpr std::string_view kLengths = "the number of queries is `Sq`, the number of keys `Skv`";
constexpr Elsewhere kElsewhereDimensions[] = {
    {"b", "the batch dimension is `B`"},
    {"batch", "the batch dimension is `B`"},
    {"batch_size", "the batch dimension is `B`"},
    {"bs", "the batch dimension is `B`"},
    {"h", kHeadNames},
    {"H", kHeadNames},
    {"head", kHeadNames},
    {"heads", kHeadNames},
    {"num_heads", kHeadNames},
    {"n_heads", kHeadNames},
    {"nheads", kHeadNames},
    {"q_heads", "the query heads are `Hq`"},
    {"num_q_heads", "the query heads are `Hq`"},
    {"kv_heads", "the key heads are `Hkv`"},
    {"num_kv_heads", "the key heads are `Hkv`"},
    {"n_kv_heads", "the key heads are `Hkv`"},
    {"s", kLengths},
    {"S", kLengths},
    {"N", kLengths},
    {"L", kLengths},
    {"T", kLengths},
    {"seq", kLengths},
    {"seqlen", kLengths},
    {"seq_len", kLengths},
    {"sequence", kLengths},
    {"q_len", "the number of queries is `Sq`"},
    {"seqlen_q", "the number of queries is `Sq`"},
    {"kv_len", "the number of keys is `Skv`"},
    {"seqlen_k", "the number of keys is `Skv`"},
    {"seqlen_kv", "the number of keys is `Skv`"},
    {"d", "the head dimension is `D`, or `Dqk` and `Dv`"},
    {"dim", "the head dimension is `D`, or `Dqk` and `Dv`"},
    {"head_dim", "the head dimension is `D`, or `Dqk` and `Dv`"},
    {"head_size", "the head dimension is `D`, or `Dqk` and `Dv`"},
};
constexpr std::string_view kSoftmax = "softmax is always applied after the last `score` clause";
constexpr std::string_view kCausal = "write `q_idx >= kv_idx`, or `causal()` of `masks.attn`";
constexpr std::string_view kProduct =
    "`score` is the product of q and k already; elements of q and k cannot be read";
constexpr std::string_view kIndexWords = "the indexes are `q_idx` and `kv_idx`";
constexpr Elsewhere kElsewhereFunctions[] = {
    {"matmul", kProduct},
    {"bmm", kProduct},
    {"einsum", kProduct},
    {"dot", kProduct},
    {"arange", kIndexWords},
    {"iota", kIndexWords},
    {"triu", kCausal},
    {"absolute", "write `abs`"},
    {"fabs", "write `abs`"},
    {"clip", "write `clamp`"},
    {"power", "write `pow`"},
    {"fmax", "write `max`"},
    {"fmin", "write `min`"},
    {"arctan2", "write `atan2`"},
    {"expit", "write `sigmoid`"},
    {"swish", "write `silu`"},
    {"select", "write `where`"},
    {"cond", "write `where`"},
    {"float32", "write `float`"},
    {"int32", "write `int`"},
    {"int64", "write `int`"},
    {"square", "write `x ** 2`"},
    {"reciprocal", "write `1 / x`"},
    {"log10", "write `log(x) / log(10)`"},
    {"round", "write `floor(x + 0.5)`"},
    {"sign", "write `where(x > 0, 1, where(x < 0, -1, 0))`"},
    {"zeros_like", "write `0`"},
    {"ones_like", "write `1`"},
    {"full_like", "write the value: `-inf`"},
    {"tensor", "write the number, or declare `tensor t: f32[Hq];`"},
    {"ge", "write `x >= y`"},
    {"greater_equal", "write `x >= y`"},
    {"gt", "write `x > y`"},
    {"greater", "write `x > y`"},
    {"le", "write `x <= y`"},
    {"less_equal", "write `x <= y`"},
    {"lt", "write `x < y`"},
    {"less", "write `x < y`"},
    {"eq", "write `x == y`"},
    {"equal", "write `x == y`"},
    {"ne", "write `x != y`"},
    {"not_equal", "write `x != y`"},
    {"add", "write `x + y`"},
    {"subtract", "write `x - y`"},
    {"sub", "write `x - y`"},
    {"multiply", "write `x * y`"},
    {"mul", "write `x * y`"},
    {"divide", "write `x / y`"},
    {"div", "write `x / y`"},
    {"floor_divide", "write `x // y`"},
    {"remainder", "write `x % y`, which has the sign of y"},
    {"mod", "write `x % y`, which has the sign of y"},
    {"negative", "write `-x`"},
    {"neg", "write `-x`"},
    {"tril", kCausal},
    {"causal_mask", kCausal},
    {"sliding_window", "`window(w)` of `masks.attn` shows w keys, including the query's own"},
    {"not", "write `!`, or `~` as in FlexAttention: `!(a < b)`"},
    {"logical_not", "write `!x`"},
    {"logical_and", "write `x && y`"},
    {"logical_or", "write `x || y`"},
    {"logical_xor", "write `x ^ y`, which takes two booleans"},
    {"bitwise_and", "write `x & y`"},
    {"bitwise_or", "write `x | y`"},
    {"and_masks", "call each mask and join the calls with `&&`, or write a `mask` clause for each"},
    {"or_masks", "call each mask and join the calls with `||`"},
    {"softmax", kSoftmax},
    {"log_softmax", kSoftmax},
    {"masked_fill", "a `mask` clause hides scores; `where(condition, a, b)` chooses a value"},
    {"dropout", "dropout is a clause: `dropout 0.1;`"},
};

std::string lowered(std::string_view name) {
  std::string result(name);
  std::ranges::transform(result, result.begin(), lower);
  return result;
}

// What a table says of a name as it is written, else in small letters.
std::string_view elsewhere(std::span<const Elsewhere> table, std::string_view name) {
  for (const std::string& spelling : {std::string(name), lowered(name)}) {
    const auto found = std::ranges::find(table, spelling, &Elsewhere::name);
    if (found != table.end()) return found->here;
  }
  return "";
}

// The name in backticks, if the help has only one and nothing else in backticks; else "".
std::string only_name_in(std::string_view help) {
  const std::size_t open = help.find('`'), close = help.find('`', open + 1);
  if (close == help.npos || help.find('`', close + 1) != help.npos) return "";
  const std::string_view word = help.substr(open + 1, close - open - 1);
  const auto is_letter = [](char c) {
    return lower(c) != c || (c >= 'a' && c <= 'z') || c == '_' || c == '-';
  };
  return std::ranges::all_of(word, is_letter) ? std::string(word) : "";
}

Suggestion nearest_of(std::string_view name, std::span<const std::string_view> candidates) {
  return did_you_mean(support::nearest(name, candidates));
}

Suggestion suggestion(std::span<const Elsewhere> table, std::string_view name,
                      std::span<const std::string_view> candidates) {
  const std::string_view here = elsewhere(table, name);
  if (here.empty()) return nearest_of(name, candidates);
  return {std::string(here), only_name_in(here)};
}

}  // namespace

void Suggestion::put(diag::Diagnostic& diagnostic, support::Span name) const {
  diagnostic.help = help;
  diagnostic.add_replacement(name, replacement);
}

Suggestion did_you_mean(std::string_view close) {
  if (close.empty()) return {};
  return {fmt::format("did you mean {}?", support::quoted(close)), std::string(close)};
}

void expect_one_of(std::span<const std::string_view> words, std::string_view written,
                   diag::Diagnostic& diagnostic, support::Span name) {
  did_you_mean(support::nearest(written, words)).put(diagnostic, name);
  if (!diagnostic.help.empty()) return;
  diagnostic.help = "expected " + support::one_of(words);
  for (const std::string_view word : words) diagnostic.add_replacement(name, word);
}

std::span<const std::string_view> bound_names() { return kBound; }
std::span<const std::string_view> dimension_names() { return kDimensions; }
std::span<const std::string_view> run_time_names() { return kRunTime; }
std::span<const std::string_view> input_names() { return kInputs; }
std::span<const std::string_view> built_clauses() { return kBuilt; }

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}
bool is_bound_name(std::string_view name) { return contains(kBound, name); }
bool is_dimension_name(std::string_view name) { return contains(kDimensions, name); }

Suggestion suggestion(std::string_view name, std::span<const std::string_view> candidates) {
  return suggestion(kElsewhere, name, candidates);
}

Suggestion dimension_suggestion(std::string_view name,
                                std::span<const std::string_view> candidates) {
  return suggestion(kElsewhereDimensions, name, candidates);
}

Suggestion output_suggestion(std::string_view name, std::span<const std::string_view> candidates) {
  constexpr std::string_view kOutput = "the output is `o`";
  constexpr std::string_view kLse = "the log-sum-exp is `lse`";
  constexpr std::string_view kMax = "the largest score of each row is `max`";
  constexpr std::string_view kSum = "the sum of each row is `sum_exp`";
  constexpr Elsewhere kOutputs[] = {
      {"out", kOutput},         {"output", kOutput},   {"attn", kOutput}, {"attn_out", kOutput},
      {"attn_output", kOutput}, {"result", kOutput},   {"y", kOutput},    {"logsumexp", kLse},
      {"log_sum_exp", kLse},    {"softmax_lse", kLse}, {"stats", kLse},   {"l", kSum},
      {"row_sum", kSum},        {"rowsum", kSum},      {"denom", kSum},   {"denominator", kSum},
      {"sumexp", kSum},         {"m", kMax},           {"row_max", kMax}, {"rowmax", kMax},
      {"max_scores", kMax},     {"max_logits", kMax},
  };
  return suggestion(kOutputs, name, candidates);
}

Suggestion function_suggestion(std::string_view name,
                               std::span<const std::string_view> candidates) {
  return suggestion(kElsewhereFunctions, name, candidates);
}

std::string_view type_elsewhere(std::string_view name) {
  constexpr Elsewhere kTypes[] = {
      {"float16", "f16"}, {"half", "f16"},         {"fp16", "f16"},           {"bfloat16", "bf16"},
      {"float32", "f32"}, {"float", "f32"},        {"fp32", "f32"},           {"float64", "f64"},
      {"double", "f64"},  {"tfloat32", "tf32"},    {"tf32", "tf32"},          {"fp64", "f64"},
      {"int8", "i8"},     {"uint8", "u8"},         {"int32", "i32"},          {"int", "i32"},
      {"int64", "i64"},   {"long", "i64"},         {"boolean", "bool"},       {"fp8", "e4m3"},
      {"float8", "e4m3"}, {"f8", "e4m3"},          {"fp8_e4m3", "e4m3"},      {"e4m3fn", "e4m3"},
      {"f8e4m3", "e4m3"}, {"float8_e4m3", "e4m3"}, {"float8_e4m3fn", "e4m3"}, {"fp8_e5m2", "e5m2"},
      {"f8e5m2", "e5m2"}, {"float8_e5m2", "e5m2"},
  };
  return elsewhere(kTypes, name);
}

}  // namespace attn::sema
