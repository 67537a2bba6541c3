// The values that an attention is given at run time, from --in and from defaults.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"
#include "tools/command.h"

namespace attn::tools {

// --in NAME=VALUE as written.
using InputTexts = std::map<std::string, std::string>;

void add_in(CLI::App& command, InputTexts& inputs);

// What to do for an integer or boolean tensor, or an i32 param, that is not given.
enum class Missing : std::uint8_t {
  refuse,   // error that names it
  pattern,  // the values of kPattern
};

// Values of a tensor that its spec gives a default, and of a seed and offset (0), are always there.
inline constexpr std::string_view kDefault = "default";

// Other integers and booleans by Missing::pattern: lengths of S, (S + 1) / 2, 1, 0 in turn; sorted
// blocks like document ids, floor(4 i / n) along the last dimension of n (booleans: whether that is
// odd); params: 4 (i32), 0.75 (f32).
inline constexpr std::string_view kPattern = "blocks";

struct Inputs {
  reference::Inputs values;
  // Where each came from, as --in would say it; in the order q, k, v, do, captured, params.
  std::vector<std::pair<std::string, std::string>> origins;
  // Of finite values that their dtype rounds to infinity, one for each tensor or param.
  std::vector<std::string> warnings;
};

// The cotangent of o, [B,Hq,Sq,Dv].
inline constexpr const char* kCotangent = "do";

// What is going to be computed: gradients need kCotangent too.
enum class Needs : std::uint8_t { forward, gradients };

// Every dimension must be bound. Tensors come with the dtype that the spec gives them, floats as
// wide as they were given (whoever uses them rounds). Errors: invalid_argument for a name that the
// spec has not, a value that has no meaning, dims, integers or a dtype that do not fit, what
// Missing::refuse refuses, and tensors that host memory cannot hold; io.
Result<Inputs> make_inputs(const ir::Attention& attention, const InputTexts& texts, Missing missing,
                           Needs needs = Needs::forward);

// What a captured integer or boolean tensor of the spec holds when it is given no value: its
// default, or the pattern. Errors: invalid_argument for a name that the spec has not.
Result<io::HostTensor> default_tensor(const ir::Attention& attention, const std::string& name);

}  // namespace attn::tools
