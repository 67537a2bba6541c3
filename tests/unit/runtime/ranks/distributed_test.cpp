#include "runtime/ranks/distributed.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

#include "runtime/cuda/graph.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/graph/extent.h"
#include "runtime/io/layout.h"
#include "runtime/ranks/given_values.h"
#include "runtime/ranks/nccl_transport.h"
#include "runtime/ranks/program_json.h"
#include "tests/standin/executing.h"
#include "tests/support/local_transport.h"
#include "tests/unit/runtime/ranks/on_standins.h"
#include "tests/unit/runtime/ranks/window_family.h"

namespace attn::ranks::distributed_tests {
namespace {

using attn::testing::LocalGroup;
using attn::testing::LocalTransport;
using plan::Direction;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::NanSensitiveDoubleEq;
using ::testing::Pair;
using ::testing::Pointwise;
using ::testing::StartsWith;
using Bytes = std::vector<std::byte>;

// One rank's object, with tensors for both directions.
struct Rank {
  std::shared_ptr<execute::Runtime> runtime;
  std::unique_ptr<execute::ExecutableCache> executables;
  std::optional<Distributed> opened;
  std::map<std::string, cuda::DeviceBuffer> buffers;

  std::vector<void*> addresses(Direction direction) const {
    std::vector<void*> all;
    for (const plan::TensorInfo& tensor : opened->tensors(direction))
      all.push_back(buffers.at(tensor.name).data());
    return all;
  }
  execute::Arguments arguments(Direction direction) const {
    execute::Arguments all;
    for (const plan::TensorInfo& tensor : opened->tensors(direction))
      all.address(tensor.name, buffers.at(tensor.name).data());
    all.scalar("slope", 0.5);
    return all;
  }
  Bytes bytes(const std::string& name) const {
    Bytes read(buffers.at(name).size());
    EXPECT_TRUE(buffers.at(name).download(read).ok());
    return read;
  }
};

class DistributedTest : public OnStandins {
 protected:
  static Bytes bytes_of(const std::string& name, int rank, std::size_t size) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i)
      bytes[i] = std::byte{static_cast<unsigned char>(name[0] * 7 + rank * 31 + i * 13 % 251)};
    return bytes;
  }

  Result<Rank> open(const std::shared_ptr<LocalGroup>& group, int rank,
                    const Result<plan::Family>& family) {
    return open(std::make_unique<LocalTransport>(group, rank, device()), family);
  }

  Result<Rank> open(std::unique_ptr<Transport> transport, const Result<plan::Family>& family) {
    const int rank = transport->rank();
    Rank made;
    ATTN_ASSIGN(made.runtime, standin::open_runtime());
    made.executables = std::make_unique<execute::ExecutableCache>(made.runtime);
    ATTN_ASSIGN(made.opened, Distributed::open(*made.executables, family, std::move(transport)));
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const plan::TensorInfo& tensor : made.opened->tensors(direction)) {
        if (made.buffers.contains(tensor.name)) continue;
        const auto size =
            static_cast<std::size_t>(io::element_count(tensor.dims)) * size_of(tensor.dtype);
        ATTN_ASSIGN(made.buffers[tensor.name], cuda::DeviceBuffer::allocate(device(), size));
        ATTN_RETURN_IF_ERROR(made.buffers[tensor.name].upload(bytes_of(tensor.name, rank, size)));
      }
    }
    return made;
  }

  // Opens both ranks, and runs `body` in a thread of each.
  void run(const std::function<void(Rank&)>& body) {
    auto group = std::make_shared<LocalGroup>(2);
    in_ranks(2, [&](int rank) {
      Rank made = must(open(group, rank, testing::window_family()));
      body(made);
    });
  }

  static std::int64_t calls(const char* function) {
    return standin::cuda().control.calls(function, STANDIN_ANY);
  }

  // Captures with NCCL: what threads do together cannot be captured.
  void expect_captured(const plan::Family& family) {
    const auto nccl = must(Nccl::load(standin::folder()));
    void* communicators[2] = {};
    standin::nccl().make(2, communicators);
    in_ranks(2, [&](int number) {
      auto transport =
          must(NcclTransport::create(nccl, device(), {.communicator = communicators[number]}));
      Rank rank = must(open(std::move(transport), family));
      for (const Direction direction : {Direction::forward, Direction::backward}) {
        auto binding = must(rank.opened->bind(direction, rank.arguments(direction)));
        const char* const output = direction == Direction::forward ? "o" : "dk";
        ASSERT_TRUE(binding.execute(nullptr).ok());
        const Bytes expected = rank.bytes(output);
        ASSERT_TRUE(rank.buffers.at(output).fill(0).ok());
        const cuda::Graph graph = must(
            cuda::Graph::capture(device(), [&](void* stream) { return binding.execute(stream); }));
        EXPECT_NE(rank.bytes(output), expected) << "only captured";
        for (int time = 0; time < 2; ++time) ASSERT_TRUE(graph.launch(nullptr).ok());
        EXPECT_EQ(rank.bytes(output), expected);
        EXPECT_TRUE(rank.opened->status().ok());
      }
    });
    for (void* communicator : communicators) standin::nccl().destroy(communicator);
  }

  // Two ranks execute once while the stand-in writes its log. The callers' streams in it, by rank.
  std::array<std::string, 2> executed_once(const plan::Family& family, Direction direction) {
    auto group = std::make_shared<LocalGroup>(2);
    std::array<std::string, 2> callers;
    in_ranks(2, [&](int number) {
      Rank rank = must(open(group, number, family));
      const cuda::Stream stream = must(cuda::Stream::create(device()));
      callers[static_cast<std::size_t>(number)] =
          std::to_string(reinterpret_cast<std::uintptr_t>(stream.handle()));
      auto binding = must(rank.opened->bind(direction, rank.arguments(direction)));
      standin::cuda().control.record(1);
      ASSERT_TRUE(binding.execute(stream.handle()).ok());
    });
    return callers;
  }

  // What the stand-in's log has of each stream, in order: functions, and kernels or events.
  using Work = std::vector<std::pair<std::string, std::string>>;
  struct Streams {
    std::map<std::string, Work> work;
    std::map<std::string, std::vector<int>> lines;  // of the log
  };
  static Streams streams_of_log() {
    Streams streams;
    std::istringstream log(standin::log_of(standin::cuda().control));
    int number = 0;
    for (std::string line; std::getline(log, line); ++number) {
      std::istringstream words(line);
      std::string function, stream, what;
      if (!(words >> function >> stream >> what)) continue;
      streams.work[stream].emplace_back(function, what);
      streams.lines[stream].push_back(number);
    }
    return streams;
  }
  static Work begin_of(const Work& work, std::size_t count) {
    return {work.begin(), work.begin() + static_cast<std::ptrdiff_t>(std::min(count, work.size()))};
  }

  // What rank 1's part has of k or v: the last keys of rank 0, then its own.
  static Bytes keys_of_part(const std::string& name, int rank, const Bytes& own) {
    if (rank == 0) return own;
    Bytes all = bytes_of(name, 0, own.size());
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }

  static std::vector<double> numbers_of(const Bytes& bf16) {
    std::vector<double> numbers;
    for (std::size_t i = 0; i < bf16.size(); i += 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, bf16.data() + i, sizeof bits);
      numbers.push_back(from_bf16_bits(bits));
    }
    return numbers;
  }

  static plan::Plan plan_of(const std::string& name) {
    for (const plan::Plan& plan : testing::window_family().parts.plans) {
      if (plan.spec_name == name) return plan;
    }
    throw std::runtime_error("no plan " + name);
  }
};

TEST_F(DistributedTest, PartsSeeWhatOtherRanksSend) {
  run([&](Rank& rank) {
    const int number = rank.opened->program().rank;
    auto binding = must(rank.opened->bind(Direction::forward, rank.arguments(Direction::forward)));
    const cuda::Stream stream = must(cuda::Stream::create(device()));
    for (int time = 0; time < 3; ++time) {
      ASSERT_TRUE(binding.execute(stream.handle()).ok());
      ASSERT_TRUE(rank.opened->status().ok());
    }
    const standin::Bytes inputs = {{"q", rank.bytes("q")},
                                   {"k", keys_of_part("k", number, rank.bytes("k"))},
                                   {"v", keys_of_part("v", number, rank.bytes("v"))}};
    const auto expected = standin::expected_outputs(plan_of("part" + std::to_string(number)),
                                                    inputs, {{"slope", 0.5}});
    EXPECT_EQ(rank.bytes("o"), expected.at("o"));
    EXPECT_EQ(rank.bytes("lse"), expected.at("lse"));
  });
}

TEST_F(DistributedTest, GradientsOfKeysAreSummedAtHome) {
  run([&](Rank& rank) {
    const int number = rank.opened->program().rank;
    auto binding =
        must(rank.opened->bind(Direction::backward, rank.arguments(Direction::backward)));
    ASSERT_TRUE(binding.execute(nullptr).ok());
    const standin::Bytes inputs = {{"q", rank.bytes("q")},
                                   {"k", keys_of_part("k", number, rank.bytes("k"))},
                                   {"v", keys_of_part("v", number, rank.bytes("v"))},
                                   {"o", rank.bytes("o")},
                                   {"lse", rank.bytes("lse")},
                                   {"do", rank.bytes("do")}};
    const auto expected = standin::expected_outputs(plan_of("back" + std::to_string(number)),
                                                    inputs, {{"slope", 0.5}});
    EXPECT_EQ(rank.bytes("dq"), expected.at("dq")) << "of one part alone";
    // The first half of rank 0's keys are its own alone.
    const std::vector<double> dk = numbers_of(rank.bytes("dk")),
                              of_part = numbers_of(expected.at("dk"));
    constexpr std::size_t kHalf = 128;
    if (number == 0) {
      EXPECT_THAT(std::span(dk).first(kHalf),
                  Pointwise(NanSensitiveDoubleEq(), std::span(of_part).first(kHalf)));
      EXPECT_NE(dk.back(), of_part.back());
    } else {
      EXPECT_THAT(dk, Pointwise(NanSensitiveDoubleEq(), std::span(of_part).subspan(kHalf)));
    }
  });
}

TEST_F(DistributedTest, AnExecuteNeitherAllocatesNorWaits) {
  run([&](Rank& rank) {
    auto binding = must(rank.opened->bind(Direction::forward, rank.arguments(Direction::forward)));
    ASSERT_TRUE(binding.execute(nullptr).ok());
    ASSERT_TRUE(binding.set_param("slope", 0.25).ok());
    ASSERT_TRUE(binding.set_addresses(rank.addresses(Direction::forward)).ok());
  });
  standin::cuda().control.reset();
  auto group = std::make_shared<LocalGroup>(2);
  std::vector<Rank> ranks(2);
  std::vector<std::optional<DistributedBinding>> bindings(2);
  in_ranks(2, [&](int rank) {
    Rank& made = ranks[static_cast<std::size_t>(rank)];
    made = must(open(group, rank, testing::window_family()));
    bindings[static_cast<std::size_t>(rank)].emplace(
        must(made.opened->bind(Direction::forward, made.arguments(Direction::forward))));
  });
  const std::int64_t allocated = calls("cuMemAlloc"), waited = calls("cuStreamSynchronize"),
                     launched = calls("cuLaunchKernelEx"), ordered = calls("cuStreamWaitEvent");
  in_ranks(2, [&](int rank) {
    ASSERT_TRUE(bindings[static_cast<std::size_t>(rank)]->execute(nullptr).ok());
  });
  EXPECT_EQ(calls("cuMemAlloc"), allocated);
  EXPECT_EQ(calls("cuStreamSynchronize"), waited);
  EXPECT_EQ(calls("cuEventSynchronize"), 0);
  // Both launch two marks and a part; rank 1 also copies its own keys beside those that arrive.
  // Rank 0 sends from where its keys are, and results need no merge.
  EXPECT_EQ(calls("cuLaunchKernelEx") - launched, 2 * 3 + 1);
  // Exchanges wait for tensors, the caller for what comes before the first one, for this one, also
  // on rank 0, which only sends, and for all. The transport waits twice for each piece: of k and of
  // v.
  EXPECT_EQ(calls("cuStreamWaitEvent") - ordered, 2 * 4 + 2 * 2);
  bindings.clear();
  ranks.clear();
}

// A part may take all multiprocessors until it ends: what is not packed then is sent later, and
// waiting for an exchange would leave them idle. A launch that does nothing lets the exchange's
// kernel begin first.
TEST_F(DistributedTest, TheFirstPartWaitsForAllPackingAndForNoExchange) {
  const auto callers = executed_once(testing::staged_family(), Direction::forward);
  std::map<std::string, Work> streams = streams_of_log().work;
  for (std::size_t number = 0; number < 2; ++number) {
    Work first = begin_of(streams[callers[number]], 4);
    ASSERT_THAT(first, ElementsAre(Pair("cuEventRecord", _), Pair("cuStreamWaitEvent", _),
                                   Pair("cuLaunchKernelEx", "attn_ranks_merge"),
                                   Pair("cuLaunchKernelEx", "part")));
    const std::string begun = first[0].second, packed = first[1].second;
    const auto exchanges = std::ranges::find_if(streams, [&](const auto& stream) {
      return stream.second[0] == std::pair<std::string, std::string>("cuStreamWaitEvent", begun);
    });
    ASSERT_NE(exchanges, streams.end());
    Work expected = {{"cuStreamWaitEvent", begun}, {"cuLaunchKernelEx", "attn_ranks_mark"}};
    // For each stage that sends.
    if (number == 0) expected.insert(expected.end(), 2, {"cuLaunchKernelEx", "attn_ranks_copy"});
    expected.emplace_back("cuEventRecord", packed);
    EXPECT_EQ(begin_of(exchanges->second, expected.size()), expected) << number;
  }
}

// What is sent leaves before the last part may take all multiprocessors.
TEST_F(DistributedTest, ResultsLeaveBeforePartsThatSendNothing) {
  const auto callers = executed_once(testing::own_last_family(), Direction::backward);
  Streams streams = streams_of_log();
  for (std::size_t number = 0; number < 2; ++number) {
    const std::size_t sent_by = number == 1 ? 1 : 0;
    const Work& all = streams.work[callers[number]];
    constexpr std::size_t kFirst = 3;  // until the keys have arrived, or left
    ASSERT_GE(all.size(), kFirst + sent_by + 4);
    const Work work(all.begin() + kFirst, all.end());
    Work expected(sent_by, {"cuLaunchKernelEx", "part"});
    const std::string made = work[sent_by].second, merged = work[sent_by + 1].second;
    expected.insert(expected.end(), {{"cuEventRecord", made},
                                     {"cuStreamWaitEvent", merged},
                                     {"cuLaunchKernelEx", "attn_ranks_merge"},  // of no rows
                                     {"cuLaunchKernelEx", "part"}});
    EXPECT_EQ(begin_of(work, expected.size()), expected) << number;
    const int last_part = streams.lines[callers[number]][kFirst + sent_by + 3];
    Work leaves = {{"cuStreamWaitEvent", made}};
    leaves.insert(leaves.end(), 2 * sent_by, {"cuLaunchKernelEx", "attn_ranks_merge"});
    leaves.emplace_back("cuEventRecord", merged);
    bool found = false;
    for (const auto& [stream, of] : streams.work) {
      const auto at = std::ranges::search(of, leaves);
      if (at.empty()) continue;
      found = true;
      ASSERT_NE(at.end(), of.end());
      EXPECT_EQ(at.end()->first, "cuEventRecord") << "with which the transport's exchange begins";
      EXPECT_LT(streams.lines[stream][static_cast<std::size_t>(at.end() - of.begin())], last_part);
    }
    EXPECT_TRUE(found) << number;
  }
}

// A rank that exchanges nothing makes the calls of the others.
TEST_F(DistributedTest, AllRanksMakeAllExchanges) {
  auto group = std::make_shared<LocalGroup>(3);
  in_ranks(3, [&](int number) {
    Rank rank = must(open(group, number, testing::own_last_family(3)));
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      auto binding = must(rank.opened->bind(direction, rank.arguments(direction)));
      for (int time = 0; time < 2; ++time) {
        const Status status = binding.execute(nullptr);
        EXPECT_TRUE(status.ok()) << number << ": " << status.error().to_text();
      }
    }
  });
}

TEST_F(DistributedTest, AnExecuteIsCapturedWithItsExchanges) {
  expect_captured(testing::window_family());
  expect_captured(testing::own_last_family());  // of which results leave between parts
}

TEST_F(DistributedTest, OtherStridesAreOfMemoryOfTheBindingsOwn) {
  run([&](Rank& rank) {
    const auto forward = rank.opened->tensors(Direction::forward);
    execute::Arguments arguments;
    arguments.scalar("slope", 0.5);
    for (const plan::TensorInfo& tensor : forward) {
      execute::TensorView view{rank.buffers.at(tensor.name).data(), tensor.dtype, tensor.dims, {}};
      view.strides = row_major_strides(tensor.dims);
      arguments.tensor(tensor.name, view);
    }
    auto binding = must(rank.opened->bind(Direction::forward, arguments));
    ASSERT_TRUE(binding.execute(nullptr).ok());
    EXPECT_TRUE(rank.opened->status().ok());
  });
}

TEST_F(DistributedTest, BindChecksTensorsAndParams) {
  run([&](Rank& rank) {
    const auto message = [&](const execute::Arguments& arguments) {
      const auto bound = rank.opened->bind(Direction::forward, arguments);
      return bound.ok() ? "" : bound.error().to_text();
    };
    execute::Arguments some;
    some.scalar("slope", 0.5);
    EXPECT_THAT(message(some), HasSubstr("tensor 'q' (bf16 [1, 2, 16, 8]) is not given"));
    execute::Arguments wrong = rank.arguments(Direction::forward);
    wrong.address("k", nullptr);
    EXPECT_THAT(message(wrong), HasSubstr("tensor 'k' has a null address"));
    wrong.tensor("k", {rank.buffers.at("k").data(), DType::bf16, {1, 2, 16, 8}, {256, 8, 16, 2}});
    EXPECT_THAT(message(wrong), HasSubstr("tensor 'k' has strides [256, 8, 16, 2]"));
    execute::Arguments overlapping = rank.arguments(Direction::forward);
    overlapping.tensor("o",
                       {rank.buffers.at("o").data(), DType::bf16, {1, 2, 16, 8}, {256, 0, 16, 1}});
    EXPECT_THAT(message(overlapping), HasSubstr("tensor 'o' has strides [256, 0, 16, 1]"));

    auto binding = must(rank.opened->bind(Direction::forward, rank.arguments(Direction::forward)));
    EXPECT_EQ(binding.set_param("slop", 1).error().message, "the attention has no param 'slop'");
    std::vector<void*> addresses = rank.addresses(Direction::forward);
    addresses[1] = &addresses;
    EXPECT_THAT(binding.set_addresses(addresses).error().message, HasSubstr("tensor 'k' is in"));
  });
}

// What the division hides is what those values hide.
TEST_F(DistributedTest, OtherValuesThanThoseOfTheDivisionAreRefused) {
  auto group = std::make_shared<LocalGroup>(2);
  in_ranks(2, [&](int index) {
    const std::vector<std::int64_t> dims = {1, 2, 16, 8}, strides = {256, 8, 16, 1};
    const Bytes bytes = bytes_of("k", 0, 512);  // of one file
    const io::HostTensor values = must(io::unpack(bytes, dims, strides, DType::bf16));
    plan::Family family = testing::window_family();
    Division division = must(parse(family.ranks));
    division.values = {{"slope", "0.5", hash_of(0.5)},
                       {"k", "@k.npy", must(hash_of(values, DType::bf16))}};
    testing::put(division, family);
    Rank rank = must(open(group, index, family));
    execute::Arguments arguments = rank.arguments(Direction::forward);
    EXPECT_TRUE(rank.buffers.at("k").upload(bytes).ok());
    auto binding = must(rank.opened->bind(Direction::forward, arguments));
    EXPECT_TRUE(rank.buffers.at("k").upload(bytes_of("v", index, 512)).ok());
    EXPECT_THAT(rank.opened->bind(Direction::forward, arguments).error().to_text(),
                HasSubstr("k has other values than those that the attention was divided for\n"
                          "  note: `compile --ranks` got --in k=@k.npy"));
    EXPECT_TRUE(rank.buffers.at("k").upload(bytes).ok());
    EXPECT_TRUE(binding.set_param("slope", 0.5).ok());
    cuda::DeviceBuffer same = must(cuda::DeviceBuffer::allocate(device(), bytes.size())),
                       other = must(cuda::DeviceBuffer::allocate(device(), bytes.size()));
    EXPECT_TRUE(same.upload(bytes).ok() && other.upload(bytes_of("v", index, 512)).ok());
    std::vector<void*> addresses = rank.addresses(Direction::forward);
    addresses[1] = other.data();
    EXPECT_THAT(binding.set_addresses(addresses).error().message, HasSubstr("k has other values"));
    EXPECT_TRUE(binding.set_addresses(addresses, execute::Check::no).ok()) << "a promise";
    EXPECT_FALSE(binding.set_addresses(addresses).ok()) << "that is not trusted later";
    addresses[1] = same.data();
    EXPECT_TRUE(binding.set_addresses(addresses).ok());
    EXPECT_TRUE(same.upload(bytes_of("v", index, 512)).ok());
    EXPECT_TRUE(binding.set_addresses(addresses).ok()) << "what is written later is not seen";
    EXPECT_EQ(binding.set_param("slope", 0.25).error().code, ErrorCode::binding);
    arguments.scalar("slope", 0.25);
    EXPECT_THAT(rank.opened->bind(Direction::forward, arguments).error().to_text(),
                HasSubstr("slope has other values than those that the attention was divided for"));
  });
}

// A capture cannot read them. The device is not waited for, which would end the other rank's
// capture.
TEST_F(DistributedTest, ValuesMustBeComparedBeforeACapture) {
  auto group = std::make_shared<LocalGroup>(2);
  in_ranks(2, [&](int index) {
    const std::vector<std::int64_t> dims = {1, 2, 16, 8}, strides = {256, 8, 16, 1};
    const Bytes bytes = bytes_of("k", 0, 512);
    const io::HostTensor values = must(io::unpack(bytes, dims, strides, DType::bf16));
    plan::Family family = testing::window_family();
    Division division = must(parse(family.ranks));
    division.values = {{"k", "@k.npy", must(hash_of(values, DType::bf16))}};
    testing::put(division, family);
    Rank rank = must(open(group, index, family));
    EXPECT_TRUE(rank.buffers.at("k").upload(bytes).ok());
    const cuda::Stream stream = must(cuda::Stream::create(device()));
    const auto captured = [&](const execute::Arguments& arguments) {
      Status bound;
      const auto recorded = cuda::Recording::make(stream, [&](void* on) {
        bound = rank.opened->bind(Direction::forward, arguments, on).status();
        return Status();
      });
      EXPECT_TRUE(recorded.ok()) << "the capture survives";
      return bound;
    };
    execute::Arguments arguments = rank.arguments(Direction::forward);
    EXPECT_THAT(captured(arguments).error().message, HasSubstr("k were not compared yet"));
    EXPECT_TRUE(rank.opened->bind(Direction::forward, arguments, stream.handle()).ok());
    EXPECT_TRUE(captured(arguments).ok());
    cuda::DeviceBuffer other = must(cuda::DeviceBuffer::allocate(device(), bytes.size()));
    arguments.address("k", other.data());
    EXPECT_THAT(captured(arguments).error().message, HasSubstr("k were not compared yet"));
  });
}

// A binding that goes back to memory whose values were compared may be captured. Each rank compares
// on its own stream: the default stream waits for all, which would end the other rank's capture.
TEST_F(DistributedTest, AddressesOfComparedValuesAreSetInACapture) {
  auto group = std::make_shared<LocalGroup>(2);
  in_ranks(2, [&](int index) {
    const std::vector<std::int64_t> dims = {1, 2, 16, 8}, strides = {256, 8, 16, 1};
    const Bytes bytes = bytes_of("k", 0, 512);
    plan::Family family = testing::window_family();
    Division division = must(parse(family.ranks));
    division.values = {
        {"k", "@k.npy",
         must(hash_of(must(io::unpack(bytes, dims, strides, DType::bf16)), DType::bf16))}};
    testing::put(division, family);
    Rank rank = must(open(group, index, family));
    cuda::DeviceBuffer other = must(cuda::DeviceBuffer::allocate(device(), bytes.size()));
    cuda::DeviceBuffer unknown = must(cuda::DeviceBuffer::allocate(device(), bytes.size()));
    EXPECT_TRUE(rank.buffers.at("k").upload(bytes).ok() && other.upload(bytes).ok());
    const cuda::Stream stream = must(cuda::Stream::create(device()));
    auto binding = must(
        rank.opened->bind(Direction::forward, rank.arguments(Direction::forward), stream.handle()));
    const std::vector<void*> first = rank.addresses(Direction::forward);
    std::vector<void*> second = first, third = first;
    second[1] = other.data();
    third[1] = unknown.data();
    EXPECT_TRUE(binding.set_addresses(second, execute::Check::yes, stream.handle()).ok());
    const auto recorded = cuda::Recording::make(stream, [&](void* on) {
      EXPECT_TRUE(binding.set_addresses(first, execute::Check::yes, on).ok());
      EXPECT_TRUE(binding.set_addresses(second, execute::Check::yes, on).ok());
      EXPECT_THAT(binding.set_addresses(third, execute::Check::yes, on).error().message,
                  HasSubstr("k were not compared yet"));
      return Status();
    });
    EXPECT_TRUE(recorded.ok()) << "the capture survives";
  });
}

TEST_F(DistributedTest, OneRanksErrorIsThatOfAll) {
  auto group = std::make_shared<LocalGroup>(2);
  in_ranks(2, [&](int rank) {
    Result<plan::Family> family = testing::window_family();
    if (rank == 1) family = Error{ErrorCode::io, "cannot read the file"};
    const auto opened = open(group, rank, family);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::io);
    EXPECT_EQ(opened.error().message, rank == 1 ? "cannot read the file"
                                                : "rank 1 could not prepare: cannot read the file");
  });
}

TEST_F(DistributedTest, RanksMustHaveTheSameFile) {
  auto group = std::make_shared<LocalGroup>(2);
  in_ranks(2, [&](int rank) {
    plan::Family family = testing::window_family();
    if (rank == 1) {
      Division other = testing::window_division();
      other.sharding = "another";
      testing::put(other, family);
    }
    const auto opened = open(group, rank, family);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::mismatch);
  });
}

TEST_F(DistributedTest, TheFamilyIsThatOfThePlans) {
  const auto message = [&](auto change) {
    plan::Family family = testing::window_family();
    Division division = must(parse(family.ranks));
    change(family, division);
    family.ranks = to_json(division);
    const auto group = std::make_shared<LocalGroup>(2);
    std::string text;
    in_ranks(2, [&](int rank) {
      const auto opened = open(group, rank, family);
      if (rank == 0) text = opened.ok() ? "" : opened.error().message;
    });
    return text;
  };
  const auto is_refused = StartsWith("the file's ranks are not of its plans");
  EXPECT_EQ(message([](auto&, auto&) {}), "");
  EXPECT_THAT(message([](auto&, Division& it) { it.family = "00fe"; }), is_refused);
  EXPECT_THAT(message([](auto&, Division& it) { it.params.clear(); }), is_refused);
  EXPECT_THAT(message([](plan::Family& it, auto&) { it.kernels += " "; }), is_refused);
  const auto is_of_other_sizes = [](plan::Family& it, auto&) {
    it.parts.plans[0] = testing::plan_of_part("part0", 16, 24, false, 1);
  };
  EXPECT_THAT(message(is_of_other_sizes), is_refused);
  // A file of one rank does not have what the hash is of.
  const auto is_alone = [&](plan::Family& it, Division& division) {
    is_of_other_sizes(it, division);
    division.only = 0;
  };
  EXPECT_EQ(message(is_alone),
            "tensor 'k' of the plan `part0` has other dims than part 0 of rank 0");
}

TEST_F(DistributedTest, FilesMustBeOfAsManyRanks) {
  auto group = std::make_shared<LocalGroup>(1);
  const auto opened = open(group, 0, testing::window_family());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().message, "the file is of 2 ranks, but the communicator has 1");
  plan::Family plain = testing::window_family();
  plain.ranks.clear();
  EXPECT_EQ(open(std::make_shared<LocalGroup>(1), 0, plain).error().message,
            "the file is not of several ranks");
}

TEST_F(DistributedTest, MemoryThatRunsOutOnOneRankIsAnErrorOfAll) {
  auto group = std::make_shared<LocalGroup>(2);
  standin::cuda().set_memory(64);
  in_ranks(2, [&](int rank) {
    const auto opened = open(group, rank, testing::window_family());
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::cuda);
  });
}

TEST_F(DistributedTest, AnExecuteThatFailsEndsTheWork) {
  auto group = std::make_shared<LocalGroup>(2, std::chrono::milliseconds(200));
  in_ranks(2, [&](int rank) {
    Rank made = must(open(group, rank, testing::window_family()));
    auto binding = must(made.opened->bind(Direction::forward, made.arguments(Direction::forward)));
    if (rank == 1) {
      const auto rule = standin::fail_nth("cuStreamWaitEvent", 1, CUDA_ERROR_LAUNCH_FAILED);
      standin::cuda().control.script(&rule);
    }
    Status failed = binding.execute(nullptr);
    if (failed.ok()) failed = binding.execute(nullptr);
    EXPECT_FALSE(failed.ok());
    EXPECT_FALSE(made.opened->status().ok()) << "on both: the other one does not answer";
    EXPECT_FALSE(binding.execute(nullptr).ok());
  });
}

}  // namespace
}  // namespace attn::ranks::distributed_tests
