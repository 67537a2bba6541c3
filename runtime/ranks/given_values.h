// Values that an attention was divided for: a file of ranks has their hashes (GivenValue), and is
// right for these alone.
#pragma once

#include <string>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::ranks {

// XXH3-128, in hexadecimal, of the elements as `type` stores them, row-major. Errors:
// invalid_argument for a value that does not fit an integer type.
Result<std::string> hash_of(const io::HostTensor& values, DType type);

// The hash of a param: integers are exact, other numbers as f32.
std::string hash_of(double param);

}  // namespace attn::ranks
