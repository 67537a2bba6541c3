// File descriptors: ownership, and reads and writes that survive signals.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace attn {

// Owns a file descriptor, or none (-1).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // False with errno set when the system reports that something written is lost. The descriptor is
  // gone in any case, and closing none succeeds.
  bool close();

 private:
  int fd_ = -1;
};

// False with errno set when something could not be written.
bool write_all(int fd, std::string_view bytes);

// Everything up to the end of the file; nothing with errno set on a failure.
std::optional<std::string> read_all(int fd);

// read() again when a signal came in between.
std::ptrdiff_t read_some(int fd, char* buffer, std::size_t size);

// "memfd_create: Permission denied"
std::string errno_text(std::string_view what);

}  // namespace attn
