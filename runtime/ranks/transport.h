// How ranks exchange memory: NCCL (nccl.h), or threads of one process that share a GPU (tests).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::ranks {

// Contiguous device memory that goes to a rank or comes from one.
struct Piece {
  int peer = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// One rank's end. Calls are for one thread at a time, except failed() and abort(), which a watching
// thread calls beside them. All ranks must make the same calls in the same order; between two ranks
// pieces are matched by their order.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Each enqueues on `stream` and returns; all may be captured into a CUDA graph. Errors: nccl.
  virtual Status exchange(std::span<const Piece> sends, std::span<const Piece> receives,
                          void* stream) = 0;
  virtual Status all_reduce(float* values, std::size_t count, void* stream) = 0;  // sums, in place
  // What every rank gives, by rank; all give as many bytes. Waits for all ranks, but no longer than
  // `timeout_seconds`. Errors: nccl; the transport can then only be aborted.
  virtual Result<std::vector<std::string>> all_gather(std::string_view bytes,
                                                      int timeout_seconds) = 0;

  // An error that NCCL noticed meanwhile.
  virtual Status failed() const = 0;
  // Ends all that waits for other ranks, now and later. At most once.
  virtual void abort() = 0;
};

}  // namespace attn::ranks
