// The cuDNN handles of one device, for the threads that work there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include "runtime/base/status.h"
#include "runtime/cudnn/execution.h"

namespace attn::cudnn {

// A handle is used by one thread at a time (cuDNN's rule), so whoever may need one takes a seat,
// and leases a handle for the length of a call. Leasing takes no lock: an atomic flag of a handle
// that is nobody's, nearly always the one that the seat had before. Safe to use from many threads.
class Handles {
 public:
  static constexpr int kMost = 64;

  // At most `most` handles, 1 .. kMost.
  Handles(std::shared_ptr<const Library> library, int most);
  // The device's context must be current. Nobody may have a seat or a lease.
  void clear();

  int size() const { return count_.load(std::memory_order_acquire); }

  // A handle until the end of the scope.
  class Lease {
   public:
    Lease(Lease&&) = delete;
    ~Lease() { busy_.store(false, std::memory_order_release); }
    Session& session() const { return session_; }

   private:
    friend class Handles;
    Lease(std::atomic<bool>& busy, Session& session) : busy_(busy), session_(session) {}
    std::atomic<bool>& busy_;
    Session& session_;
  };

  // One thread at a time. The handles must outlive it.
  class Seat {
   public:
    Seat(Seat&& other) noexcept;
    Seat& operator=(Seat&&) = delete;
    ~Seat();

    // Waits while all handles are leased, which can only be when there are more seats than may be
    // handles.
    Lease lease() { return handles_->lease(number_); }

   private:
    friend class Handles;
    Seat(Handles& handles, int number)
        : handles_(&handles), number_(static_cast<std::size_t>(number)) {}
    Handles* handles_;
    std::size_t number_;  // of the handle that is tried first
  };

  // Makes a handle when there are more seats than handles and may be more. The device's context
  // must be current. Errors: cudnn.
  Result<Seat> take_seat();

 private:
  struct alignas(64) Slot {
    std::atomic<bool> busy = false;
    std::unique_ptr<Session> session;
  };

  Status reserve(int count);
  Lease lease(std::size_t& number);

  std::shared_ptr<const Library> library_;
  int most_;
  std::atomic<int> seats_ = 0;  // taken
  std::mutex mutex_;            // of making handles
  std::atomic<int> count_ = 0;
  std::array<Slot, kMost> slots_;  // those before count_ have a session, and never lose it
};

}  // namespace attn::cudnn
