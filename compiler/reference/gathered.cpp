#include "compiler/reference/gathered.h"

#include <algorithm>

namespace attn::reference {

std::vector<std::int64_t> listed_keys(const ir::Attention& attention, const Bindings& bindings,
                                      std::int64_t batch, std::int64_t row) {
  if (!attention.gather) return {};
  const io::HostTensor& keys = bindings.tensors.find(attention.gather->keys)->second;
  const std::int64_t all = keys.dims[2], at = batch * keys.dims[1] + row;
  std::int64_t count = all;
  if (!attention.gather->counts.empty()) {
    const io::HostTensor& counts = bindings.tensors.find(attention.gather->counts)->second;
    count = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(counts.values[static_cast<std::size_t>(at)]), 0, all);
  }
  std::vector<std::int64_t> listed;
  for (std::int64_t n = 0; n < count; ++n)
    listed.push_back(
        static_cast<std::int64_t>(keys.values[static_cast<std::size_t>(at * all + n)]));
  return listed;
}

}  // namespace attn::reference
