#include "runtime/ranks/nccl_transport.h"

#include <cuda.h>

#include <atomic>

#include "runtime/cuda/graph.h"
#include "tests/unit/runtime/ranks/exchanges.h"

namespace attn::ranks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRemoteError = 6, kDeviceNotReady = CUDA_ERROR_NOT_READY;

class NcclTransportTest : public OnStandins {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    nccl_ = must(Nccl::load(standin::folder()));
  }
  void TearDown() override {
    for (void* comm : comms_) standin::nccl().destroy(comm);
    OnStandins::TearDown();
  }

  void make(int ranks) {
    for (void* comm : comms_) standin::nccl().destroy(comm);
    comms_.resize(static_cast<std::size_t>(ranks));
    standin::nccl().make(ranks, comms_.data());
  }
  void* comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  auto create(NcclOptions options) { return NcclTransport::create(nccl_, device(), options); }
  std::unique_ptr<NcclTransport> transport(int rank = 0) {
    return must(create({.communicator = comm(rank)}));
  }
  // Runs each rank in a thread with a stream of its own.
  void run(int ranks, const std::function<void(NcclTransport&, void* stream)>& body) {
    make(ranks);
    in_ranks(ranks, [&](int rank) {
      const auto made = transport(rank);
      const cuda::Stream stream = must(cuda::Stream::create(device()));
      cuda::Scope scope;
      ASSERT_TRUE(scope.enter(device()).ok());
      body(*made, stream.handle());
    });
  }
  static void script(const StandinRule& rule) { standin::nccl().control.script(&rule); }
  static std::int64_t calls(const char* function) {
    return standin::nccl().control.calls(function, STANDIN_ANY);
  }

  std::shared_ptr<const Nccl> nccl_;
  std::vector<void*> comms_;
};

TEST_F(NcclTransportTest, PiecesArriveInTheirOrder) {
  for (const int ranks : {1, 2, 4}) {
    run(ranks, [&](NcclTransport& transport, void* stream) {
      EXPECT_EQ(transport.ranks(), ranks);
      for (int time = 0; time < 3; ++time) {
        EXPECT_EQ(exchange_with_all(transport, device(), stream),
                  expected_at(transport.rank(), ranks));
      }
    });
  }
}

TEST_F(NcclTransportTest, AllReduceAddsUpAndAllGatherTellsAll) {
  for (const int ranks : {1, 3}) {
    run(ranks, [&](NcclTransport& transport, void* stream) {
      const Floats values(device(), {1, static_cast<float>(transport.rank())});
      EXPECT_TRUE(transport.all_reduce(values.data(), 2, stream).ok());
      EXPECT_THAT(values.get(), ElementsAre(ranks, ranks * (ranks - 1) / 2));
      const auto all = must(transport.all_gather("rank " + std::to_string(transport.rank()), 30));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
      EXPECT_EQ(all.back(), "rank " + std::to_string(ranks - 1));
      EXPECT_TRUE(transport.failed().ok());
    });
  }
}

TEST_F(NcclTransportTest, GraphsExchangeAtEachLaunch) {
  run(2, [&](NcclTransport& transport, void*) {
    const int other = 1 - transport.rank();
    Floats out(device(), {0}), in(device(), {0});
    const Piece sends{other, out.data(), out.bytes()}, receives{other, in.data(), in.bytes()};
    const cuda::Graph graph = must(cuda::Graph::capture(device(), [&](void* stream) {
      return transport.exchange({&sends, 1}, {&receives, 1}, stream);
    }));
    EXPECT_THAT(in.get(), ElementsAre(0));
    for (const float value : {3.0F, 4.0F}) {
      ASSERT_TRUE(out.set({value + static_cast<float>(transport.rank())}).ok());
      ASSERT_TRUE(graph.launch(nullptr).ok());
      EXPECT_THAT(in.get(), ElementsAre(value + static_cast<float>(other)));
    }
  });
}

TEST_F(NcclTransportTest, CommunicatorsThatDoNotFitAreRefused) {
  EXPECT_EQ(create({}).error().code, ErrorCode::invalid_argument);
  make(2);
  const Error size = create({.communicator = comm(0), .ranks = 4}).error();
  EXPECT_EQ(size.code, ErrorCode::invalid_argument);
  EXPECT_EQ(size.message, "the file is for 4 ranks, but the communicator has 2");
  standin::nccl().set_device(comm(1), 1);
  const Error device = create({.communicator = comm(1), .ranks = 2}).error();
  EXPECT_EQ(device.code, ErrorCode::invalid_argument);
  EXPECT_EQ(device.message, "the communicator is for CUDA device 1, but the runtime for 0");
}

TEST_F(NcclTransportTest, CommunicatorsThatDoNotBlockAreWaitedFor) {
  make(1);
  standin::nccl().set_state(comm(0), 3, kNcclSuccess);
  const auto made = transport();
  EXPECT_EQ(calls("ncclCommGetAsyncError"), 4);
  const cuda::Stream stream = must(cuda::Stream::create(device()));
  const Floats values(device(), {1});
  standin::nccl().set_state(comm(0), 2, kNcclSuccess);
  cuda::Scope scope;
  ASSERT_TRUE(scope.enter(device()).ok());
  EXPECT_TRUE(made->all_reduce(values.data(), 1, stream.handle()).ok());
  EXPECT_EQ(calls("ncclCommGetAsyncError"), 7);

  standin::nccl().set_state(comm(0), 2, kRemoteError);
  EXPECT_THAT(made->all_reduce(values.data(), 1, stream.handle()).error().message,
              HasSubstr("remote process exited"));
}

TEST_F(NcclTransportTest, ButNotForever) {
  make(1);
  standin::nccl().set_state(comm(0), 1 << 30, kNcclSuccess);
  const Error error =
      create({.communicator = comm(0), .timeout = std::chrono::milliseconds(50)}).error();
  EXPECT_EQ(error.code, ErrorCode::nccl);
  EXPECT_EQ(error.message, "NCCL: making the communicator: not done within 0.05 s");
}

TEST_F(NcclTransportTest, EveryFailureOfNcclIsAnErrorWithItsWords) {
  const auto use = [&](const char* function) -> Status {
    make(1);
    const Floats values(device(), {1, 2});
    const cuda::Stream stream = must(cuda::Stream::create(device()));
    cuda::Scope scope;
    ATTN_RETURN_IF_ERROR(scope.enter(device()));
    script(standin::fail_nth(function, 1, kRemoteError, "the cable is cut"));
    ATTN_ASSIGN(const auto made, create({.communicator = comm(0)}));
    const Piece out{0, values.data(), 4}, in{0, values.data() + 1, 4};
    ATTN_RETURN_IF_ERROR(made->exchange({&out, 1}, {&in, 1}, stream.handle()));
    ATTN_RETURN_IF_ERROR(made->all_reduce(values.data(), 1, stream.handle()));
    return made->all_gather("x", 30).status();
  };
  for (const char* function : {"ncclCommCount", "ncclCommUserRank", "ncclCommCuDevice",
                               "ncclCommGetAsyncError", "ncclGroupStart", "ncclSend", "ncclRecv",
                               "ncclGroupEnd", "ncclAllReduce", "ncclAllGather"}) {
    SCOPED_TRACE(function);
    const Status failed = use(function);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::nccl);
    EXPECT_THAT(failed.error().message, HasSubstr(": remote process exited"));
    EXPECT_THAT(failed.error().notes, ElementsAre("the cable is cut"));
  }
  EXPECT_TRUE(use("ncclNothing").ok()) << "without a failure";
}

TEST_F(NcclTransportTest, FailuresOfTheDriverAreErrorsAndLeaveNothing) {
  make(1);
  for (const char* function : {"cuStreamCreate", "cuEventCreate", "cuMemAlloc", "cuMemcpyHtoDAsync",
                               "cuEventRecord", "cuEventQuery", "cuMemcpyDtoHAsync"}) {
    SCOPED_TRACE(function);
    make(1);
    const StandinRule rule = standin::fail_nth(function, 1, CUDA_ERROR_LAUNCH_FAILED);
    standin::cuda().control.script(&rule);
    const auto made = create({.communicator = comm(0)});
    const Status status = made.ok() ? (*made)->all_gather("x", 30).status() : made.status();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::cuda);
  }
}

TEST_F(NcclTransportTest, ErrorsThatNcclNoticesMeanwhileAreTold) {
  make(1);
  const auto made = transport();
  standin::nccl().set_state(comm(0), 1, kRemoteError);
  EXPECT_TRUE(made->failed().ok()) << "in progress";
  const Status failed = made->failed();
  EXPECT_EQ(failed.error().code, ErrorCode::nccl);
  EXPECT_THAT(failed.error().message, HasSubstr("remote process exited"));
}

// The other rank never comes, and NCCL waits in the call, as when it connects ranks.
TEST_F(NcclTransportTest, AllGatherWaitsNoLongerThanItMay) {
  make(2);
  const auto made = transport();
  const auto start = std::chrono::steady_clock::now();
  const Error error = made->all_gather("x", 1).error();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(error.code, ErrorCode::nccl);
  EXPECT_EQ(error.message, "not all of the 2 ranks answer within 1 s");
  EXPECT_EQ(standin::nccl().aborts(comm(0)), 1);
}

TEST_F(NcclTransportTest, AllGatherEndsWhenRanksWaitInVain) {
  make(2);
  const auto made =
      must(create({.communicator = comm(0), .lost = [] { return "rank 1 is lost"; }}));
  const Error error = made->all_gather("x", 100).error();
  EXPECT_EQ(error.code, ErrorCode::nccl);
  EXPECT_EQ(error.message, "rank 1 is lost");
  EXPECT_EQ(standin::nccl().aborts(comm(0)), 1);
}

// The call has returned, and the device waits.
TEST_F(NcclTransportTest, AllGatherWaitsForTheDeviceNoLongerThanItMay) {
  make(1);
  std::atomic<int> aborts = 0;
  const auto made = must(create({.communicator = comm(0), .abort = [&] { ++aborts; }}));
  const StandinRule never = standin::fail_nth("cuEventQuery", 0, kDeviceNotReady);
  standin::cuda().control.script(&never);
  EXPECT_EQ(made->all_gather("x", 0).error().message, "not all of the 1 ranks answer within 0 s");
  EXPECT_EQ(aborts, 1);
  EXPECT_EQ(standin::nccl().aborts(comm(0)), 0) << "the application does it";
}

TEST_F(NcclTransportTest, AnErrorOfNcclEndsTheWaitForTheDevice) {
  make(1);
  const auto made = transport();
  const StandinRule never = standin::fail_nth("cuEventQuery", 0, kDeviceNotReady);
  standin::cuda().control.script(&never);
  standin::nccl().set_state(comm(0), 0, kRemoteError);
  EXPECT_THAT(made->all_gather("x", 30).error().message, HasSubstr("remote process exited"));
  EXPECT_EQ(standin::nccl().aborts(comm(0)), 1);
}

TEST_F(NcclTransportTest, AbortEndsACallThatWaitsForAnotherRank) {
  make(2);
  const auto made = transport();
  Floats values(device(), {1});
  const Piece in{1, values.data(), values.bytes()};
  std::thread waits([&] {
    const cuda::Stream stream = must(cuda::Stream::create(device()));
    cuda::Scope scope;
    ASSERT_TRUE(scope.enter(device()).ok());
    EXPECT_EQ(made->exchange({}, {&in, 1}, stream.handle()).error().code, ErrorCode::nccl);
  });
  while (calls("ncclGroupEnd") == 0) std::this_thread::yield();
  in_ranks(4, [&](int) { made->abort(); });
  waits.join();
  EXPECT_EQ(standin::nccl().aborts(comm(0)), 1);
}

TEST_F(NcclTransportTest, AfterAnAbortNcclIsNotCalledAgain) {
  make(1);
  const auto made = transport();
  made->abort();
  made->abort();
  EXPECT_EQ(standin::nccl().aborts(comm(0)), 1);
  const std::int64_t before = calls(nullptr);
  const Floats values(device(), {1});
  EXPECT_EQ(made->exchange({}, {}, nullptr).error().message, "the communicator was aborted");
  EXPECT_FALSE(made->all_reduce(values.data(), 1, nullptr).ok());
  EXPECT_FALSE(made->all_gather("x", 30).ok());
  EXPECT_FALSE(made->failed().ok());
  EXPECT_EQ(calls(nullptr), before);
}

}  // namespace
}  // namespace attn::ranks
