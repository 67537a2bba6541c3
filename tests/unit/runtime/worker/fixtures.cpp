#include "tests/unit/runtime/worker/fixtures.h"

#include <stdlib.h>

#include <iterator>

#include "runtime/base/check.h"
#include "runtime/targets/targets.h"

namespace attn::testing {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "attn-test-XXXXXX").string();
  ATTN_CHECK(mkdtemp(name.data()) != nullptr, "a temporary folder can be made");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

worker::Options worker_options(const TemporaryFolder& folder) {
  worker::Options options;
  options.command = {ATTN_WORKER_PROGRAM, "worker"};
  options.report_folder = folder.path().string();
  options.timeout = std::chrono::seconds(120);
  return options;
}

std::string device_json(const std::string& target) {
  const auto found = targets::find_target(target);
  ATTN_CHECK(found.ok(), "the target is built in");
  return found->device_json;
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

}  // namespace attn::testing
