// Ranks that are threads of one process and share one GPU, or the stand-in driver: tests of several
// ranks need neither several GPUs nor NCCL.
//
// Every call waits on the host until all ranks have made it. What is received is copied on the
// receiver's stream, after an event of the sender's; later work of the sender waits for the copy.
// So it works for any streams, but cannot be captured into a CUDA graph, whose launches do not make
// the call again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "runtime/ranks/transport.h"

namespace attn::testing {

// Where the ranks meet. Thread-safe.
class LocalGroup {
 public:
  // `patience`: how long a call waits for the other ranks, but for all_gather(), which says so.
  explicit LocalGroup(int ranks, std::chrono::milliseconds patience = std::chrono::seconds(30));

  // What a rank brings to a meeting.
  struct Post {
    std::string call;  // that all ranks must make
    std::vector<ranks::Piece> sends, receives;
    std::shared_ptr<const cuda::Event> event;  // of the rank's stream
    std::string bytes;
  };
  // What every rank brings, by rank. Errors: nccl, if one does not come in time or makes another
  // call, or after leave() of this rank.
  Result<std::vector<Post>> meet(int rank, Post post,
                                 std::optional<std::chrono::milliseconds> patience = {});
  void leave(int rank);  // ends its wait, and later ones

  // What LocalTransport::failed() of a rank answers from now on.
  void set_failure(int rank, const Error& error);
  Status failure(int rank) const;

  int ranks() const { return static_cast<int>(members_.size()); }
  int aborts(int rank) const;  // calls of leave()

 private:
  struct Member {
    long meetings = 0;
    int aborts = 0;
    std::optional<Error> failure;
  };
  struct Meeting {
    std::vector<std::optional<Post>> posts;
    int here = 0, gone = 0;
  };

  const std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::map<long, Meeting> meetings_;
};

class LocalTransport final : public ranks::Transport {
 public:
  LocalTransport(std::shared_ptr<LocalGroup> group, int rank, const cuda::Device& device)
      : group_(std::move(group)), rank_(rank), device_(device) {}

  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }
  Status exchange(std::span<const ranks::Piece> sends, std::span<const ranks::Piece> receives,
                  void* stream) override;
  Status all_reduce(float* values, std::size_t count, void* stream) override;
  Result<std::vector<std::string>> all_gather(std::string_view bytes, int timeout_seconds) override;
  Status failed() const override { return group_->failure(rank_); }
  void abort() override { group_->leave(rank_); }

 private:
  Result<std::shared_ptr<const cuda::Event>> mark(void* stream) const;

  std::shared_ptr<LocalGroup> group_;
  int rank_;
  cuda::Device device_;
};

}  // namespace attn::testing
