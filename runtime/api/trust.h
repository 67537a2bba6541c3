// Whether the contents of a plan file are what the caller trusts. Private to this room.
#pragma once

#include <string_view>

#include "runtime/api/attn.h"
#include "runtime/base/status.h"
#include "runtime/plan/bundle.h"

namespace attn::api {

// From attn_load_options or attn_picker_options.
class Trust {
 public:
  template <typename Options>
  explicit Trust(const Options& options)
      : sha256_(options.sha256), verify_(options.verify), user_(options.verify_user) {}

  // Errors: plan_refused; invalid_argument when the expected hash is not one.
  Status operator()(std::string_view bytes) const;
  // The same for loading a file. Nothing when every file will do, so that no more of a foreign file
  // is read than its header.
  plan::CheckBytes of_file() const {
    if (sha256_ == nullptr && verify_ == nullptr) return {};
    return *this;
  }

 private:
  const char* sha256_;
  attn_verify_callback verify_;
  void* user_;
};

}  // namespace attn::api
