// Input values of an attention at run time, from --in and from defaults.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::tools {

// --in NAME=VALUE as written.
using InputTexts = std::map<std::string, std::string>;

// How to treat an integer or boolean tensor, or a param, without a value.
enum class Missing : std::uint8_t {
  refuse,   // an error that names it; f32 params are random
  pattern,  // the values described at kPattern
  lifelike  // tensors as reference/lifelike.h makes them, also for `random`; params: a quarter of
            // Skv (i32) or 0.75 (f32)
};

// Origin of a tensor that has a default in the spec. (Seed and offset default to 0.)
inline constexpr std::string_view kDefault = "default";

// Origin of other integers and booleans with Missing::pattern. Lengths are S, (S + 1) / 2, 1, 0 in
// turn; tensors hold sorted blocks like segment ids, floor(4 i / n) along the last dimension of
// size n (booleans: whether that is odd); params are 4 (i32) or 0.75 (f32).
inline constexpr std::string_view kPattern = "blocks";

struct Inputs {
  reference::Inputs values;
  // Origin of each value, in the syntax of --in; in the order q, k, v, do, dlse, captured,
  // params.
  std::vector<std::pair<std::string, std::string>> origins;
  // One for each tensor or param with finite values that its dtype rounds to infinity.
  std::vector<std::string> warnings;
};

// The cotangent of o, [B,Hq,Sq,Dv].
inline constexpr const char* kCotangent = "do";
// The cotangent of lse, f32 [B,Hq,Sq], if the attention reads_d_lse.
inline constexpr const char* kCotangentOfLse = "dlse";

// What will be computed. Gradients also need the cotangents; masks, and masks and scores, need only
// the tensors and params that they read, and lengths.
enum class Needs : std::uint8_t { masks, masks_and_scores, forward, gradients };

// Every dimension must be bound. Tensors have the dtype of the spec; floats keep the precision they
// were given in (the user of the values rounds). Errors: invalid_argument for an unknown name, one
// that what is computed does not read, an invalid value, dims, integers or a dtype that do not fit,
// given values that break what the spec declares about the tensor, a missing value with
// Missing::refuse, and tensors larger than host memory; io.
Result<Inputs> make_inputs(const ir::Attention& attention, const InputTexts& texts, Missing missing,
                           Needs needs = Needs::forward);

// Error: that of make_inputs for sizes whose tensors the memory of this machine cannot hold.
Status check_host_memory(const ir::Attention& attention, Needs needs);

// Seconds that make_inputs takes for a random element on this machine, measured in milliseconds.
double seconds_of_element();

// Elements that make_inputs makes for the attention at other sizes: those of a file are none, and
// those of a default are as many as its expression has operations. A dimension of a captured tensor
// that is as large as Sq or Skv follows it.
double elements_made(const ir::Attention& attention, const InputTexts& texts, Needs needs,
                     const ir::Dims& dims);

// The values that are given alone. Errors: those of make_inputs.
Result<reference::Inputs> given_inputs(const ir::Attention& attention, const InputTexts& texts);

// Tensors and params that masks and lengths read, and with Needs::masks_and_scores the score.
std::set<std::string> names_read(const ir::Attention& attention, Needs needs);

// Whether --in may name it for all that is computed: also q, k, v, do, seed and offset.
bool is_input(const ir::Attention& attention, const std::string& name);

// Values of a captured integer or boolean tensor that is not given: its default, or the pattern.
// Errors: invalid_argument for an unknown name.
Result<io::HostTensor> default_tensor(const ir::Attention& attention, const std::string& name);

}  // namespace attn::tools
