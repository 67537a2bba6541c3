// The folder of a build's files. Private to this room.
#pragma once

#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"

namespace attn::shapes {

// A new folder under $TMPDIR, removed with what is in it. It is locked (flock) as long as it lives,
// so that others can tell it from one whose process was killed. create() removes those that are of
// this user, older than ten minutes, and have the name, mode and marker file that create() gives:
// no folder that others made. Errors: io.
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

}  // namespace attn::shapes
