// What refusals by cuDNN mean.
#pragma once

#include "runtime/base/status.h"

namespace attn::driver {

// A refusal by cuDNN with its reason (reason_of) as the message, which else says that it refuses; a
// failure of cuDNN's with it as the first note. Other errors stay as they are.
Error with_reason(Error error);

}  // namespace attn::driver
