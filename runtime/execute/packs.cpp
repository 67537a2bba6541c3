#include "runtime/execute/packs.h"

#include <algorithm>

namespace attn::execute {
namespace {

bool is_for(const Pack& pack, const Bases& bases) {
  return pack.used != 0 && pack.workspace == bases.workspace && pack.schedule == bases.schedule &&
         std::equal(pack.tensors.begin(), pack.tensors.end(), bases.tensors.begin(),
                    bases.tensors.end());
}

}  // namespace

// Starts after the last one, since address sets tend to be used in turn.
Pack* Packs::find(const Bases& bases) {
  for (std::size_t i = 1; i <= packs_.size(); ++i) {
    Pack& pack = packs_[(last_ + i) % packs_.size()];
    if (!is_for(pack, bases)) continue;
    last_ = (last_ + i) % packs_.size();
    pack.used = ++clock_;
    return &pack;
  }
  return nullptr;
}

Pack& Packs::add(const Bases& bases) {
  const auto oldest = std::min_element(
      packs_.begin(), packs_.end(), [](const Pack& a, const Pack& b) { return a.used < b.used; });
  last_ = static_cast<std::size_t>(oldest - packs_.begin());
  oldest->used = ++clock_;
  oldest->tensors.assign(bases.tensors.begin(), bases.tensors.end());
  oldest->workspace = bases.workspace;
  oldest->schedule = bases.schedule;
  oldest->of_cudnn.clear();
  oldest->checked = false;
  return *oldest;
}

}  // namespace attn::execute
