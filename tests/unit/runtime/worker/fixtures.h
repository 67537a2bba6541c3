// Fixtures of the worker tests: worker options and folders.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/plan/plan.h"
#include "runtime/worker/worker.h"

namespace attn::testing {

// A folder that is removed with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Options that start the tests' worker program, with reports in `folder`.
worker::Options worker_options(const TemporaryFolder& folder);

// DEVICEPROP JSON of a named target; exits the test if there is none.
std::string device_json(const std::string& target);

std::size_t open_descriptors();

}  // namespace attn::testing
