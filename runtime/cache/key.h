// What a cache finds things by.
#pragma once

#include <memory>
#include <string>

#include "runtime/plan/plan.h"

namespace attn::cache {

// A signature: target and version of cuDNN are part of its text. The hash finds, the text decides:
// two keys are equal when their texts are, whatever the hashes do. Copies share the text, and
// comparing them looks at no byte of it, so keep the Key of what is asked for often.
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
