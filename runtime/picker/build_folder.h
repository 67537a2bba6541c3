// A temporary folder for the files of a build. Internal to runtime/picker.
#pragma once

#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"

namespace attn::picker {

// A new folder under $TMPDIR, removed with its contents on destruction. It is locked (flock) while
// it lives, to distinguish it from the folder of a killed process. create() removes such stale
// folders: those of this user, older than ten minutes, with the name, mode and marker file that
// create() uses. Errors: io.
class BuildFolder {
 public:
  static Result<BuildFolder> create();
  BuildFolder(BuildFolder&& other) noexcept;
  BuildFolder& operator=(BuildFolder&&) = delete;
  ~BuildFolder();

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  BuildFolder(std::string path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  FileDescriptor lock_;
};

}  // namespace attn::picker
