#include "runtime/ranks/watch.h"

#include <cuda.h>

#include "tests/unit/runtime/ranks/on_standins.h"

namespace attn::ranks {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Does nothing but what the watch asks it for.
class Quiet final : public Transport {
 public:
  int rank() const override { return 1; }
  int ranks() const override { return 4; }
  Status exchange(std::span<const Piece>, std::span<const Piece>, void*) override { return {}; }
  Status all_reduce(float*, std::size_t, void*) override { return {}; }
  Result<std::vector<std::string>> all_gather(std::string_view, int) override {
    return std::vector<std::string>();
  }
  Status failed() const override {
    ++asked;
    return is_broken ? Status(ErrorCode::nccl, "the cable is cut") : Status();
  }
  void abort() override { ++aborts; }

  mutable std::atomic<int> asked{0};
  std::atomic<bool> is_broken{false};
  std::atomic<int> aborts{0};
};

// Goes on only when a test says so.
class TestTime final : public WatchTime {
 public:
  Clock::time_point now() const override { return Clock::time_point(now_.load()); }

  void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            std::chrono::milliseconds most, const std::function<bool()>& is_done) override {
    until_ = now() + most, is_done_ = &is_done, changed_ = &changed, mutex_ = lock.mutex();
    is_waiting_ = true;
    changed.wait(lock, [&] { return is_over(); });
    is_waiting_ = false;
  }

  // The thread of a watch that has not failed has looked at it when this returns.
  void pass(std::chrono::milliseconds time, const Watch& watch) {
    settle(watch);
    if (!is_waiting_) return;
    {
      const std::lock_guard lock(*mutex_);
      now_ = (now() + time).time_since_epoch();
      if (is_waiting_ && is_over()) is_waiting_ = false;  // it will wake, and wait again
    }
    changed_->notify_all();
    settle(watch);
  }

 private:
  bool is_over() const { return (*is_done_)() || now() >= until_; }
  void settle(const Watch& watch) const {
    while (!is_waiting_ && watch.status().ok()) std::this_thread::yield();
  }

  std::atomic<Clock::duration> now_{Clock::duration(std::chrono::hours(1))};
  std::atomic<bool> is_waiting_{false};
  // Set before it waits.
  Clock::time_point until_;
  const std::function<bool()>* is_done_ = nullptr;
  std::condition_variable* changed_ = nullptr;
  std::mutex* mutex_ = nullptr;
};

class WatchTest : public OnStandins {
 protected:
  void start(std::chrono::milliseconds timeout, AskForLost lost = {}) {
    watch_ = must(Watch::start(device(), transport_, timeout, std::move(lost), time_));
  }
  void TearDown() override {
    watch_.reset();
    OnStandins::TearDown();
  }
  // As the device does.
  static void mark(std::uint64_t address) {
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(address)).fetch_add(1);
  }
  void begin() const { mark(watch_->begun_address()); }
  void end() const { mark(watch_->ended_address()); }

  // In short steps, so that it looks often.
  void pass(std::chrono::milliseconds time) {
    for (; time > 0ms; time -= 10ms) time_.pass(10ms, *watch_);
  }
  Status failure() {
    for (int i = 0; i < 500 && watch_->status().ok(); ++i) pass(10ms);
    return watch_->status();
  }

  Quiet transport_;
  TestTime time_;
  std::unique_ptr<Watch> watch_;
};

TEST_F(WatchTest, AnExchangeThatDoesNotEndIsGivenUp) {
  start(200ms);
  const auto begun = time_.now();
  watch_->enqueued();
  begin();
  end();
  watch_->enqueued();
  begin();
  const Status status = failure();
  ASSERT_FALSE(status.ok());
  EXPECT_GE(time_.now() - begun, 200ms);
  EXPECT_EQ(status.error().code, ErrorCode::nccl);
  EXPECT_EQ(status.error().message,
            "another rank does not answer: exchanges have not ended for 0.2 s");
  EXPECT_EQ(status.error().notes[0], "these are of execute 2 of rank 1 of 4");
  end();
  EXPECT_FALSE(watch_->status().ok()) << "it is too late";
  watch_.reset();
  EXPECT_EQ(transport_.aborts, 1);
}

TEST_F(WatchTest, AnExchangeInVainIsGivenUpBeforeTheTime) {
  std::atomic<int> asked = 0;
  start(100s, [&]() -> std::optional<std::string> {
    return ++asked < 2 ? std::nullopt : std::optional<std::string>("rank 3 is lost");
  });
  watch_->enqueued();
  begin();
  const Status status = failure();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::nccl);
  EXPECT_EQ(status.error().message, "rank 3 is lost");
  EXPECT_EQ(asked, 2);
  watch_.reset();
  EXPECT_EQ(transport_.aborts, 1);
}

TEST_F(WatchTest, OneThatEndsIsNot) {
  start(250ms);
  watch_->enqueued();
  begin();
  end();
  pass(400ms);
  EXPECT_TRUE(watch_->status().ok());
  EXPECT_EQ(transport_.aborts, 0);
}

TEST_F(WatchTest, ManyMayTakeLongerThanOne) {
  start(800ms);
  begin();
  for (int i = 0; i < 24; ++i) {  // there is always one under way
    watch_->enqueued();
    begin();
    pass(50ms);
    end();
  }
  EXPECT_TRUE(watch_->status().ok());
}

TEST_F(WatchTest, WorkThatWaitsForTheDeviceIsNotGivenUp) {
  start(50ms);
  watch_->enqueued();
  pass(150ms);
  EXPECT_TRUE(watch_->status().ok()) << "its exchange has not begun";
  begin();
  EXPECT_FALSE(failure().ok());
}

TEST_F(WatchTest, LaunchesOfGraphsNeedNotBeAnnounced) {
  start(250ms);
  watch_->enqueued(true);
  begin();
  end();
  pass(300ms);
  ASSERT_TRUE(watch_->status().ok());
  begin();
  EXPECT_FALSE(failure().ok());
}

// Its communicator may be destroyed before it is.
TEST_F(WatchTest, BetweenGraphsTheTransportIsNotAsked) {
  start(160ms);  // looks every 20 ms
  watch_->enqueued(true);
  begin();
  pass(40ms);
  EXPECT_GT(transport_.asked, 0);
  end();
  pass(60ms);
  const int before = transport_.asked;
  pass(100ms);
  EXPECT_EQ(transport_.asked, before);
}

TEST_F(WatchTest, ItSleepsWhileNothingIsUnderWay) {
  start(160ms);  // looks every 20 ms
  const auto looks_again = [&](std::chrono::milliseconds time) {
    const int before = transport_.asked;
    pass(time);
    return transport_.asked != before;
  };
  for (int i = 0; i < 2; ++i) {
    watch_->enqueued();
    EXPECT_TRUE(looks_again(100ms));
    EXPECT_TRUE(looks_again(100ms));
    begin();
    end();
    int tries = 0;
    while (looks_again(60ms) && tries < 50) ++tries;
    EXPECT_LT(tries, 50);
    EXPECT_FALSE(looks_again(60ms));
  }
}

TEST_F(WatchTest, AnErrorOfTheTransportIsRecordedAtOnce) {
  start(1s);
  watch_->enqueued();
  transport_.is_broken = true;
  EXPECT_EQ(failure().error().message, "the cable is cut");
  watch_.reset();
  EXPECT_EQ(transport_.aborts, 1);
}

TEST_F(WatchTest, TheFirstErrorIsKeptAndTheTransportAbortedOnce) {
  start(20ms);
  watch_->enqueued();
  begin();
  in_ranks(4, [&](int rank) {
    watch_->fail({ErrorCode::nccl, "failed in thread " + std::to_string(rank)});
    EXPECT_FALSE(watch_->status().ok());
  });
  const std::string first = watch_->status().error().message;
  pass(50ms);
  EXPECT_EQ(watch_->status().error().message, first);
  watch_.reset();
  EXPECT_EQ(transport_.aborts, 1);
}

TEST_F(WatchTest, ItCanBeDestroyedAtAnyTime) {
  for (int i = 0; i < 20; ++i) {
    start(30s);
    if (i % 4 > 0) watch_->enqueued(i % 4 == 2);
    if (i % 4 > 1) begin();
    watch_.reset();
  }
  EXPECT_EQ(transport_.aborts, 0);
}

TEST_F(WatchTest, CountersWithoutMemoryAreAnErrorOfTheDriver) {
  for (const char* function : {"cuMemHostAlloc", "cuMemHostGetDevicePointer"}) {
    const StandinRule rule = standin::fail_nth(function, 1, CUDA_ERROR_OUT_OF_MEMORY);
    standin::cuda().control.script(&rule);
    EXPECT_EQ(Watch::start(device(), transport_, 30s).error().code, ErrorCode::cuda);
  }
}

}  // namespace
}  // namespace attn::ranks
