#include "runtime/ranks/given_values.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/base/hash.h"
#include "runtime/io/layout.h"

namespace attn::ranks {

Result<std::string> hash_of(const io::HostTensor& values, DType type) {
  ATTN_ASSIGN(const std::vector<std::byte> bytes,
              io::pack(values, values.dims, io::dense_strides(values.dims), type));
  return hash128({reinterpret_cast<const char*>(bytes.data()), bytes.size()}).to_hex();
}

std::string hash_of(double param) {
  const double stored = param == std::trunc(param) ? param : static_cast<float>(param);
  return hash128(fmt::format("{}", stored)).to_hex();
}

}  // namespace attn::ranks
