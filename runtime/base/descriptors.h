// File descriptors: ownership, and reads and writes that survive signals.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace attn {

// Owns a file descriptor, or is empty (-1).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Closes the descriptor. False with errno set if the system reports lost data; the descriptor is
  // closed anyway. Closing an empty one succeeds.
  bool close();

 private:
  int fd_ = -1;
};

// Writes all bytes. False with errno set on failure.
bool write_all(int fd, std::string_view bytes);

// Reads up to the end of the file; nullopt with errno set on failure.
std::optional<std::string> read_all(int fd);

// read(), retried when a signal interrupts it.
std::ptrdiff_t read_some(int fd, char* buffer, std::size_t size);

// Text of errno, such as "memfd_create: Permission denied".
std::string errno_text(std::string_view what);

}  // namespace attn
