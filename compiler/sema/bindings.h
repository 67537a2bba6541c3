// Values of names of a spec from the command line.
#pragma once

#include <map>
#include <string>

namespace attn::sema {

// --bind NAME=VALUE: dimensions ("Sq", or "D" for both head dims) and spec parameters.
using Bindings = std::map<std::string, std::string>;

}  // namespace attn::sema
