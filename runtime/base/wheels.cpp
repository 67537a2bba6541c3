#include "runtime/base/wheels.h"

namespace attn {

std::string_view wheels_folder() { return ATTN_WHEELS_FOLDER; }

}  // namespace attn
