// A pool of cuDNN handles of one device, shared by threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/base/status.h"
#include "runtime/cudnn/execution.h"

namespace attn::cudnn {

// cuDNN allows one thread at a time to use a handle. A user takes a seat, and leases a handle for
// the duration of a call. Leasing takes no lock: it sets the atomic flag of a free handle, nearly
// always the one that the seat had before. Thread-safe.
class Handles {
 public:
  static constexpr int kMost = 64;

  // Makes at most `most` handles, 1 .. kMost.
  Handles(std::shared_ptr<const Library> library, int most);
  // Destroys all handles. The device's context must be current; no seat or lease may exist.
  void clear();

  int size() const { return count_.load(std::memory_order_acquire); }

  // Holds a handle until the end of the scope.
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

  // Serves one thread at a time. The pool must outlive it.
  class Seat {
   public:
    Seat(Seat&& other) noexcept;
    Seat& operator=(Seat&&) = delete;
    ~Seat();

    // Waits while all handles are leased, which requires more seats than the maximum number of
    // handles.
    Lease lease() { return handles_->lease(number_); }

   private:
    friend class Handles;
    Seat(Handles& handles, int number)
        : handles_(&handles), number_(static_cast<std::size_t>(number)) {}
    Handles* handles_;
    std::size_t number_;  // the handle to try first
  };

  // Creating a handle allocates device memory. A seat without a handle of its own shares those of
  // other seats, and waits while they are leased.
  enum class Growth : std::uint8_t { with_seats, none };

  // Creates a handle if there are more seats than handles and the maximum is not reached; without
  // growth only if there is none at all. The device's context must be current. Errors: cudnn.
  Result<Seat> take_seat(Growth growth = Growth::with_seats);
  // Creates the first `count` handles, up to the maximum, if they are not there. The device's
  // context must be current. Errors: cudnn.
  Status reserve(int count);

 private:
  struct alignas(64) Slot {
    std::atomic<bool> busy = false;
    std::unique_ptr<Session> session;
  };

  Lease lease(std::size_t& number);

  std::shared_ptr<const Library> library_;
  int most_;
  std::atomic<int> seats_ = 0;  // taken
  std::mutex mutex_;            // guards creation of handles
  std::atomic<int> count_ = 0;
  std::array<Slot, kMost> slots_;  // those before count_ have a session, which stays
};

}  // namespace attn::cudnn
