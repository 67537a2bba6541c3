// Keys of caches.
#pragma once

#include <memory>
#include <string>

#include "runtime/plan/plan.h"

namespace attn::cache {

// A plan signature, whose text includes target and cuDNN version. The hash is for look-up; equality
// compares the texts. Copies share the text, and comparing them reads none of it, so keep the Key
// of a plan that is requested often.
class Key {
 public:
  explicit Key(plan::Signature signature)
      : hash_(signature.hash),
        text_(std::make_shared<const std::string>(std::move(signature.text))) {}

  const Hash128& hash() const { return hash_; }
  const std::string& text() const { return *text_; }

  bool operator==(const Key& other) const {
    return hash_ == other.hash_ && (text_ == other.text_ || *text_ == *other.text_);
  }

 private:
  Hash128 hash_;
  std::shared_ptr<const std::string> text_;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept { return key.hash().low; }
};

}  // namespace attn::cache
