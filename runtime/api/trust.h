// Checks the contents of a plan file by hash and by callback. Internal to runtime/api.
#pragma once

#include <string_view>

#include "runtime/api/attn.h"
#include "runtime/base/status.h"
#include "runtime/plan/bundle.h"

namespace attn::api {

// Checks of a file, from attn_load_options or attn_picker_options.
class Trust {
 public:
  template <typename Options>
  explicit Trust(const Options& options)
      : sha256_(options.sha256), verify_(options.verify), user_(options.verify_user) {}

  // Errors: plan_refused; invalid_argument if the expected hash is malformed.
  Status operator()(std::string_view bytes) const;
  // The same for loading a file. Empty if there is nothing to check, so that only the header of a
  // foreign file is read.
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
