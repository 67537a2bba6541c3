#include "tests/support/local_transport.h"

#include "tests/unit/runtime/ranks/exchanges.h"

namespace attn::ranks::local_transport_tests {
namespace {

using attn::testing::LocalGroup;
using attn::testing::LocalTransport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LocalTransportTest : public OnStandins {
 protected:
  // Each rank has a stream of its own.
  void run(int ranks, std::chrono::milliseconds patience,
           const std::function<void(LocalTransport&, void* stream)>& body) {
    const auto group = std::make_shared<LocalGroup>(ranks, patience);
    in_ranks(ranks, [&](int rank) {
      const cuda::Stream stream = must(cuda::Stream::create(device()));
      LocalTransport transport(group, rank, device());
      body(transport, stream.handle());
    });
  }
  static constexpr std::chrono::milliseconds kLong = std::chrono::seconds(30), kShort{50};
};

TEST_F(LocalTransportTest, PiecesArriveInTheirOrder) {
  for (const int ranks : {1, 2, 4, 8}) {
    run(ranks, kLong, [&](LocalTransport& transport, void* stream) {
      for (int time = 0; time < 3; ++time) {
        EXPECT_EQ(exchange_with_all(transport, device(), stream),
                  expected_at(transport.rank(), ranks));
      }
    });
  }
}

TEST_F(LocalTransportTest, AllReduceAddsUpAndAllGatherTellsAll) {
  run(3, kLong, [&](LocalTransport& transport, void* stream) {
    const auto rank = static_cast<float>(transport.rank());
    const Floats values(device(), {rank, 10 * rank});
    EXPECT_TRUE(transport.all_reduce(values.data(), 2, stream).ok());
    EXPECT_THAT(values.get(), ElementsAre(3, 30));
    EXPECT_THAT(must(transport.all_gather(std::to_string(transport.rank()), 30)),
                ElementsAre("0", "1", "2"));
  });
}

TEST_F(LocalTransportTest, DifferentCallsOrSizesAreErrors) {
  run(2, kLong, [&](LocalTransport& transport, void* stream) {
    const Floats values(device(), {1, 2, 3});
    const int other = 1 - transport.rank();
    const std::size_t sent = transport.rank() == 0 ? 4 : 8;
    const Piece out{other, values.data(), sent}, in{other, values.data() + 2, 4};
    EXPECT_EQ(transport.exchange({&out, 1}, {&in, 1}, stream).error().message,
              "rank 0 expects 4 bytes of rank 1, which sends 8");
  });
  run(2, kLong, [&](LocalTransport& transport, void* stream) {
    const Floats values(device(), {1});
    const Status status = transport.rank() == 0 ? transport.exchange({}, {}, stream)
                                                : transport.all_reduce(values.data(), 1, stream);
    EXPECT_THAT(status.error().message, HasSubstr("exchange and all_reduce"));
  });
}

TEST_F(LocalTransportTest, ARankThatDoesNotComeIsAnErrorAndAbortEndsTheWait) {
  run(2, kShort, [&](LocalTransport& transport, void* stream) {
    if (transport.rank() == 1) return;
    EXPECT_EQ(transport.exchange({}, {}, stream).error().code, ErrorCode::nccl);
  });
  run(2, kLong, [&](LocalTransport& transport, void* stream) {
    if (transport.rank() == 1) return;
    std::thread watch([&] { transport.abort(); });
    EXPECT_THAT(transport.exchange({}, {}, stream).error().message, HasSubstr("aborted"));
    watch.join();
  });
}

}  // namespace
}  // namespace attn::ranks::local_transport_tests
