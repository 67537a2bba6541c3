// Values that the command line gives to names of a spec.
#pragma once

#include <map>
#include <string>

namespace attn::sema {

// --bind NAME=VALUE: dimensions ("Sq", or "D" for both head dims) and spec parameters.
using Bindings = std::map<std::string, std::string>;

}  // namespace attn::sema
