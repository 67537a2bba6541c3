#include "tests/support/local_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/cuda/memory.h"

namespace attn::testing {
namespace {

using ranks::Piece;
using Posts = std::vector<LocalGroup::Post>;

Error error_of(std::string message) { return {ErrorCode::nccl, std::move(message)}; }

// The piece of `sends` that is the n-th to `rank`; null if there is none.
const Piece* nth_to(const std::vector<Piece>& sends, int rank, int n) {
  for (const Piece& piece : sends) {
    if (piece.peer == rank && n-- == 0) return &piece;
  }
  return nullptr;
}

// Whether each rank gets what it expects, so that all ranks find the same error.
Status check_sizes(const Posts& posts) {
  for (std::size_t rank = 0; rank < posts.size(); ++rank) {
    std::map<int, int> received;  // pieces, by peer
    for (const Piece& piece : posts[rank].receives) {
      const Piece* sent = nth_to(posts[static_cast<std::size_t>(piece.peer)].sends,
                                 static_cast<int>(rank), received[piece.peer]++);
      if (sent != nullptr && sent->bytes == piece.bytes) continue;
      return error_of(fmt::format("rank {} expects {} bytes of rank {}, which sends {}", rank,
                                  piece.bytes, piece.peer, sent == nullptr ? 0 : sent->bytes));
    }
  }
  return {};
}

Status copy(const cuda::Device& device, void* stream, void* to, const void* from,
            std::size_t bytes) {
  return cuda::copy_rows(device, stream, to, from, bytes, bytes, 1);
}

}  // namespace

LocalGroup::LocalGroup(int ranks, std::chrono::milliseconds patience)
    : patience_(patience), members_(static_cast<std::size_t>(ranks)) {}

Result<Posts> LocalGroup::meet(int rank, Post post,
                               std::optional<std::chrono::milliseconds> patience) {
  std::unique_lock lock(mutex_);
  Member& member = members_[static_cast<std::size_t>(rank)];
  const long number = member.meetings++;
  Meeting& meeting = meetings_[number];
  meeting.posts.resize(members_.size());
  meeting.posts[static_cast<std::size_t>(rank)] = std::move(post);
  ++meeting.here;
  changed_.notify_all();
  changed_.wait_for(lock, patience.value_or(patience_),
                    [&] { return meeting.here == ranks() || member.aborts > 0; });
  if (member.aborts > 0) return error_of("the group of threads was aborted");
  if (meeting.here < ranks()) return error_of("another thread does not answer");
  Posts posts;
  for (const auto& each : meeting.posts) posts.push_back(*each);
  if (++meeting.gone == ranks()) meetings_.erase(number);
  lock.unlock();
  for (const Post& each : posts) {
    if (each.call == posts[0].call) continue;
    return error_of(fmt::format("ranks make different calls: {} and {}", posts[0].call, each.call));
  }
  return posts;
}

void LocalGroup::leave(int rank) {
  const std::lock_guard lock(mutex_);
  ++members_[static_cast<std::size_t>(rank)].aborts;
  changed_.notify_all();
}

void LocalGroup::set_failure(int rank, const Error& error) {
  const std::lock_guard lock(mutex_);
  members_[static_cast<std::size_t>(rank)].failure = error;
}

Status LocalGroup::failure(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto& failure = members_[static_cast<std::size_t>(rank)].failure;
  return failure ? Status(*failure) : Status();
}

int LocalGroup::aborts(int rank) const {
  const std::lock_guard lock(mutex_);
  return members_[static_cast<std::size_t>(rank)].aborts;
}

Result<std::shared_ptr<const cuda::Event>> LocalTransport::mark(void* stream) const {
  ATTN_ASSIGN(cuda::Event event, cuda::Event::create(device_));
  ATTN_RETURN_IF_ERROR(event.record(stream));
  return std::shared_ptr<const cuda::Event>(std::make_shared<cuda::Event>(std::move(event)));
}

Status LocalTransport::exchange(std::span<const Piece> sends, std::span<const Piece> receives,
                                void* stream) {
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device_));
  ATTN_ASSIGN(auto written, mark(stream));
  LocalGroup::Post own{"exchange",
                       {sends.begin(), sends.end()},
                       {receives.begin(), receives.end()},
                       std::move(written),
                       {}};
  ATTN_ASSIGN(const Posts posts, group_->meet(rank_, std::move(own)));
  ATTN_RETURN_IF_ERROR(check_sizes(posts));
  std::map<int, int> received;  // pieces, by peer
  for (const Piece& piece : receives) {
    const LocalGroup::Post& sender = posts[static_cast<std::size_t>(piece.peer)];
    const Piece* sent = nth_to(sender.sends, rank_, received[piece.peer]++);
    ATTN_RETURN_IF_ERROR(sender.event->wait(stream));
    if (piece.bytes == 0) continue;
    ATTN_RETURN_IF_ERROR(copy(device_, stream, piece.data, sent->data, piece.bytes));
  }
  // What was sent may be overwritten once its receivers have copied it.
  ATTN_ASSIGN(auto copied, mark(stream));
  ATTN_ASSIGN(const Posts ends,
              group_->meet(rank_, {"end of exchange", {}, {}, std::move(copied), {}}));
  for (const Piece& piece : sends) {
    ATTN_RETURN_IF_ERROR(ends[static_cast<std::size_t>(piece.peer)].event->wait(stream));
  }
  return {};
}

// Adds up on the host, on each rank in the order of ranks.
Status LocalTransport::all_reduce(float* values, std::size_t count, void* stream) {
  const std::size_t bytes = count * sizeof(float);
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device_));
  ATTN_ASSIGN(cuda::DeviceBuffer buffer, cuda::DeviceBuffer::allocate(device_, bytes));
  ATTN_RETURN_IF_ERROR(copy(device_, stream, buffer.data(), values, bytes));
  ATTN_ASSIGN(const auto read, mark(stream));
  ATTN_RETURN_IF_ERROR(read->synchronize());
  std::vector<float> sums(count);
  std::string own(bytes, '\0');
  ATTN_RETURN_IF_ERROR(buffer.download(std::as_writable_bytes(std::span(own))));
  ATTN_ASSIGN(const Posts posts,
              group_->meet(rank_, {"all_reduce", {}, {}, nullptr, std::move(own)}));
  for (const LocalGroup::Post& post : posts) {
    if (post.bytes.size() != bytes) return error_of("ranks reduce different numbers of values");
    for (std::size_t i = 0; i < count; ++i) {
      float value = 0;
      std::copy_n(post.bytes.data() + i * sizeof value, sizeof value,
                  reinterpret_cast<char*>(&value));
      sums[i] += value;
    }
  }
  ATTN_RETURN_IF_ERROR(buffer.upload(std::as_bytes(std::span(sums))));
  ATTN_RETURN_IF_ERROR(copy(device_, stream, values, buffer.data(), bytes));
  ATTN_ASSIGN(const auto written, mark(stream));
  return written->synchronize();
}

Result<std::vector<std::string>> LocalTransport::all_gather(std::string_view bytes,
                                                            int timeout_seconds) {
  ATTN_ASSIGN(const Posts posts,
              group_->meet(rank_, {"all_gather", {}, {}, nullptr, std::string(bytes)},
                           std::chrono::seconds(timeout_seconds)));
  std::vector<std::string> all;
  for (const LocalGroup::Post& post : posts) all.push_back(post.bytes);
  return all;
}

}  // namespace attn::testing
