// The distributed part of attn.h and attn_distributed.hpp, on the stand-ins for NCCL, cuDNN and the
// driver: ranks are threads.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <attn_distributed.hpp>
#include <chrono>
#include <thread>
#include <type_traits>

#include "tests/standin/standins.h"
#include "tests/support/in_ranks.h"
#include "tests/unit/runtime/api/must.h"
#include "tests/unit/runtime/api/ranks_file.h"

namespace {

using attn::standin::must;
using ::testing::HasSubstr;

static_assert(!std::is_copy_constructible_v<attn::Distributed>);
static_assert(std::is_move_constructible_v<attn::Distributed>);
static_assert(!std::is_copy_constructible_v<attn::DistributedBinding>);

// The layout of what is in applications may only grow at its end.
static_assert(sizeof(attn_distributed_options) == 11 * sizeof(void*));
static_assert(sizeof(attn_distributed_info) == 11 * sizeof(void*));
static_assert(sizeof(attn_interval) == 16);

class AttnDistributed : public attn::standin::StandinTest {
 protected:
  void SetUp() override {
    StandinTest::SetUp();
    attn::standin::nccl().control.reset();
    attn::standin::nccl().make(2, communicators_);
  }
  void TearDown() override {
    for (void* communicator : communicators_) attn::standin::nccl().destroy(communicator);
    StandinTest::TearDown();
  }

  static attn::Runtime open_runtime() {
    attn::RuntimeOptions options;
    options.cudnn_folder = attn::standin::folder();
    return must(attn::Runtime::open(options));
  }
  attn::DistributedOptions options(int rank) const {
    attn::DistributedOptions options;
    options.communicator = communicators_[rank];
    options.nccl_folder = attn::standin::folder();
    return options;
  }

  template <typename Body>
  static void in_ranks(const Body& body) {
    attn::testing::in_ranks(2, body);
  }

  // As an application does.
  static void abort_communicator(void* communicator) {
    const std::string path = attn::standin::folder() + "/libnccl.so.2";
    void* library = dlopen(path.c_str(), RTLD_NOW);
    reinterpret_cast<int (*)(void*)>(dlsym(library, "ncclCommAbort"))(communicator);
    dlclose(library);
  }

  void* communicators_[2] = {};
  const std::string file_ = attn::standin::contents_of_ranks();
};

struct RankTensors {
  RankTensors(const attn::Runtime& runtime, const std::vector<attn::TensorInfo>& infos) {
    for (const attn::TensorInfo& info : infos) {
      const auto bytes = static_cast<std::size_t>(info.bytes);
      memory.push_back(must(attn::Memory::allocate(runtime, bytes)));
      must(memory.back().upload(std::string(bytes, '\1').data(), bytes));
      arguments.tensor(info.name, {memory.back().data(), info.dtype, info.dims, info.strides});
    }
    arguments.param("slope", 0.5);
  }
  std::vector<void*> addresses() const {
    std::vector<void*> all;
    for (const attn::Memory& each : memory) all.push_back(each.data());
    return all;
  }

  std::vector<attn::Memory> memory;
  attn::Arguments arguments;
};

TEST_F(AttnDistributed, RanksExecuteTogether) {
  in_ranks([&](int rank) {
    const attn::Runtime runtime = open_runtime();
    const auto opened = must(attn::Distributed::open_memory(runtime, file_, options(rank)));
    EXPECT_EQ(opened.name(), "window");
    EXPECT_EQ(opened.rank(), rank);
    EXPECT_EQ(opened.ranks(), 2);
    EXPECT_EQ(opened.sharding(), "2 ranks");
    EXPECT_EQ(opened.family().size(), 32U);
    EXPECT_GT(opened.device_bytes(), 0);
    ASSERT_EQ(opened.rows(1).size(), 1U);
    EXPECT_EQ(opened.rows(1)[0].begin, 16);
    EXPECT_EQ(opened.keys()[0].end, 16 * rank + 16);
    for (const auto direction : {attn::Direction::forward, attn::Direction::backward}) {
      ASSERT_TRUE(opened.has(direction));
      RankTensors tensors(runtime, must(opened.tensors(direction)));
      EXPECT_EQ(must(opened.params(direction)).at(0).name, "slope");
      auto binding = must(opened.bind(direction, tensors.arguments));
      const attn::Stream stream = must(attn::Stream::create(runtime));
      for (int time = 0; time < 3; ++time) must(binding.execute(stream.handle()));
      must(stream.synchronize());
      must(opened.status());
      must(binding.set_param("slope", 1));
      must(binding.set_addresses(tensors.addresses()));
      must(binding.execute(stream.handle()));
      must(opened.status());
    }
  });
}

TEST_F(AttnDistributed, OneDirectionIsLoadedAlone) {
  in_ranks([&](int rank) {
    const attn::Runtime runtime = open_runtime();
    attn::DistributedOptions forward = options(rank);
    forward.backward = false;
    const auto opened = must(attn::Distributed::open_memory(runtime, file_, forward));
    EXPECT_FALSE(opened.has(attn::Direction::backward));
    EXPECT_TRUE(must(opened.tensors(attn::Direction::backward)).empty());
    const auto bound = opened.bind(attn::Direction::backward, attn::Arguments());
    ASSERT_FALSE(bound.ok());
    EXPECT_EQ(bound.error().message, "the backward is not in the file, or was not loaded");
  });
}

TEST_F(AttnDistributed, AFileThatOneRankCannotReadIsAnErrorOfAll) {
  in_ranks([&](int rank) {
    const attn::Runtime runtime = open_runtime();
    const auto opened = attn::Distributed::open_memory(
        runtime, rank == 0 ? file_ : file_.substr(0, file_.size() / 2), options(rank));
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, attn::Code::plan_truncated);
    if (rank == 0) {
      EXPECT_THAT(opened.error().message, HasSubstr("rank 1 could not prepare"));
    }
  });
}

TEST_F(AttnDistributed, RefusedFilesAndMissingOptionsAreErrors) {
  in_ranks([&](int rank) {
    const attn::Runtime runtime = open_runtime();
    attn::DistributedOptions refusing = options(rank);
    refusing.verify = [](std::string_view) { return false; };
    const auto opened = attn::Distributed::open_memory(runtime, file_, refusing);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, attn::Code::plan_refused);
  });
  const attn::Runtime runtime = open_runtime();
  const auto without = attn::Distributed::open_memory(runtime, file_, {});
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(without.error().message, "the communicator must not be NULL");
  const attn::Distributed empty;
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.name(), "");
  EXPECT_EQ(empty.status().error().code, attn::Code::invalid_argument);
  EXPECT_EQ(attn_distributed_tensor_count(nullptr, ATTN_DIRECTION_FORWARD), 0U);
}

TEST_F(AttnDistributed, ARankThatFailsIsToldByStatusAndAbortsTheCommunicator) {
  std::atomic<int> aborts{0};
  in_ranks([&](int rank) {
    const attn::Runtime runtime = open_runtime();
    attn::DistributedOptions aborting = options(rank);
    aborting.abort = [&aborts, communicator = communicators_[rank]] {
      abort_communicator(communicator);
      ++aborts;
    };
    const auto opened = must(attn::Distributed::open_memory(runtime, file_, aborting));
    constexpr int kRemoteError = 6;
    attn::standin::nccl().set_state(communicators_[rank], 0, kRemoteError);
    attn::Status status;
    for (int tenths = 0; tenths < 50 && status.ok(); ++tenths) {
      RankTensors tensors(runtime, must(opened.tensors(attn::Direction::forward)));
      auto binding = must(opened.bind(attn::Direction::forward, tensors.arguments));
      static_cast<void>(binding.execute(nullptr).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      status = opened.status();
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, attn::Code::nccl);
  });
  EXPECT_EQ(aborts, 2);
}

TEST_F(AttnDistributed, ARankThatCannotGoOnEndsTheExchanges) {
  std::atomic<int> aborts{0};
  in_ranks([&](int rank) {
    const attn::Runtime runtime = open_runtime();
    attn::DistributedOptions aborting = options(rank);
    aborting.abort = [&] { ++aborts; };
    const auto opened = must(attn::Distributed::open_memory(runtime, file_, aborting));
    RankTensors tensors(runtime, must(opened.tensors(attn::Direction::forward)));
    auto binding = must(opened.bind(attn::Direction::forward, tensors.arguments));
    for (const char* why : {"no memory", "nor time"}) EXPECT_TRUE(opened.abort(why).ok());
    for (const attn::Status& status : {opened.status(), binding.execute(nullptr)}) {
      EXPECT_EQ(status.error().code, attn::Code::nccl);
      EXPECT_EQ(status.error().message, "no memory");
    }
  });
  EXPECT_EQ(aborts, 2);
  EXPECT_EQ(attn_distributed_abort(nullptr, "", nullptr), ATTN_STATUS_INVALID_ARGUMENT);
}

TEST_F(AttnDistributed, WhatTheApplicationKnowsOfARankEndsTheWait) {
  const attn::Runtime runtime = open_runtime();
  attn::DistributedOptions knowing = options(0);
  knowing.timeout_seconds = 100;
  knowing.lost = [] { return std::string(1000, 'x'); };
  const auto opened = attn::Distributed::open_memory(runtime, file_, knowing);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, attn::Code::nccl);
  EXPECT_EQ(opened.error().message, std::string(511, 'x'));
}

}  // namespace
