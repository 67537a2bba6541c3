#include "tests/host/gpu/gpu.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"
#include "tests/host/gpu/cuda.h"
#include "tests/unit/compiler/programs/stack.h"

namespace attn::gpu {
namespace {

constexpr std::size_t kLanes = 32;
constexpr std::size_t kSharedBytes = 227 * 1024;
constexpr std::size_t kNames = 16;  // of named barriers
constexpr unsigned kRows = 16;      // of a warp's part of a product
constexpr unsigned kDepth = 16;     // of products of 16-bit floats
constexpr unsigned kBytes = 32;     // of a row of a product's operand
constexpr unsigned kVector = 16;    // bytes that a swizzle keeps together

// A meeting of threads; those that wait know how often it was complete.
struct Meeting {
  unsigned arrived = 0;
  std::uint64_t rounds = 0;

  void arrive(unsigned of) {
    if (++arrived == of) arrived = 0, ++rounds;
  }
};

struct Barrier {
  unsigned arrivals = 0, arrived = 0;
  std::int64_t bytes = 0;  // that are still to come
  std::uint64_t phases = 0;

  void end_phase_if_complete() {
    if (arrived == arrivals && bytes == 0) arrived = 0, ++phases;
  }
};

struct Warp {
  Meeting meeting;
  std::array<std::array<unsigned long long, kLanes>, 2> slots{};
};

// What a thread waits for. It is a text only when a deadlock is told: threads wait often.
struct Reason {
  const char* what = "nothing";
  std::int64_t number = -1, parity = -1;  // none if negative

  bool operator==(const Reason&) const = default;
  std::string text() const {
    std::string text = what;
    if (number >= 0) text += " " + std::to_string(number);
    if (parity >= 0) text += ", parity " + std::to_string(parity);
    return text;
  }
};

struct Fiber {
  bool ended = false;
  const std::uint64_t* counter = nullptr;  // it waits until this is `until`
  std::uint64_t until = 0;
  const int* word = nullptr;  // it waits until this is `number`
  int number = 0;
  Reason waits_for;
  std::uint64_t gathered = 0;
  std::vector<Product> issued;               // and not committed
  std::vector<std::vector<Product>> groups;  // committed
  std::vector<std::function<void()>> sums;
  std::vector<std::function<void()>> vectors;  // copies that no arrival followed yet
  std::vector<std::vector<std::function<void()>>> vector_groups;

  bool can_run() const {
    return !ended && (counter == nullptr || *counter >= until) &&
           (word == nullptr || *word == number);
  }
};

// A row of a, or a column of b, as it is in memory and widened. That of 16-bit floats has 16
// elements.
using Line = std::array<float, kBytes>;
using LineBits = std::array<unsigned char, kBytes>;

void widen(const LineBits& bits, DType type, Line& values) {
  static const auto table_of = [](DType narrow, std::size_t count) {
    std::vector<float> table(count);
    for (std::size_t i = 0; i < count; ++i) {
      table[i] = static_cast<float>(narrow == DType::f16
                                        ? from_f16_bits(static_cast<std::uint16_t>(i))
                                        : from_fp8_bits(narrow, static_cast<std::uint8_t>(i)));
    }
    return table;
  };
  static const std::vector<float> halves = table_of(DType::f16, 65536);
  static const std::vector<float> e4m3 = table_of(DType::e4m3, 256);
  static const std::vector<float> e5m2 = table_of(DType::e5m2, 256);
  if (is_fp8(type)) {
    const std::vector<float>& table = type == DType::e4m3 ? e4m3 : e5m2;
    for (std::size_t k = 0; k < kBytes; ++k) values[k] = table[bits[k]];
    return;
  }
  for (std::size_t k = 0; k < kDepth; ++k) {
    unsigned short half = 0;
    std::memcpy(&half, bits.data() + 2 * k, sizeof half);
    const unsigned word = static_cast<unsigned>(half) << 16;
    if (type == DType::bf16)
      std::memcpy(&values[k], &word, sizeof word);
    else
      values[k] = halves[half];
  }
}

// Sums in a tree, as vector instructions do it.
template <bool kOf8Bits>
float dot(const Line& x, const Line& y) {
  float sums[kDepth];
  for (unsigned k = 0; k < kDepth; ++k) {
    sums[k] = x[k] * y[k];
    if (kOf8Bits) sums[k] += x[k + kDepth] * y[k + kDepth];
  }
  for (unsigned k = 0; k < 8; ++k) sums[k] += sums[k + 8];
  for (unsigned k = 0; k < 4; ++k) sums[k] += sums[k + 4];
  return sums[0] + sums[2] + (sums[1] + sums[3]);
}

// A pattern of `bytes` (0, 32, 64 or 128) exchanges the 16-byte vectors of its lines.
unsigned swizzled(unsigned address, unsigned bytes) {
  return bytes == 0 ? address : address ^ (address >> 3 & (bytes - 16) & 0x70);
}

class Block {
 public:
  // `place`: among the blocks that run at once.
  Block(HostKernel kernel, void* const* arguments, unsigned number, std::size_t place,
        std::size_t threads, Order order)
      : kernel_(kernel),
        arguments_(arguments),
        number_(number),
        first_stack_(place * threads),
        order_(order) {
    fibers_.resize(threads);
    warps_.resize((threads + kLanes - 1) / kLanes);
    if (stacks().size() < first_stack_ + threads) stacks().resize(first_stack_ + threads);
    while (memories().size() <= place) memories().emplace_back();
    memory_ = memories()[place].bytes;
    std::memset(memory_, 0xff, kSharedBytes);
    live_ = fibers_.size();
    for (std::size_t i = 0; i < threads; ++i) stacks()[first_stack_ + i].forget();
  }

  // Lets all threads run that can: each warp until it waits for others, so that what no barrier
  // separates is as far apart as it may be. False if none could, and nothing was copied.
  bool run_all() {
    current = this;
    blockIdx.x = number_;
    bool ran = false;
    for (std::size_t i = 0; i < warps_.size(); ++i) {
      const std::size_t warp = order_ == Order::early_copies ? i : warps_.size() - 1 - i;
      while (error_.empty() && run_warp(warp)) ran = true;
    }
    ran = ran || copy_late();
    current = nullptr;
    return ran;
  }
  bool has_ended() const { return live_ == 0; }
  // Why it could not go on, or nothing.
  std::string error() const {
    return error_.empty() ? "" : "block " + std::to_string(number_) + ": " + error_;
  }
  unsigned char* shared() const { return memory_; }

  Fiber& running() { return fibers_[running_]; }

  void fail(std::string why) {
    if (error_.empty()) error_ = std::move(why);
  }

  [[noreturn]] void end_with(std::string why) {
    fail(std::move(why));
    fibers_[running_].ended = true;
    leave();
    std::abort();
  }

  void wait_until(const std::uint64_t& counter, std::uint64_t until, const Reason& reason) {
    if (counter >= until) return;
    Fiber& own = fibers_[running_];
    own.counter = &counter, own.until = until, own.waits_for = reason;
    leave();
  }

  void wait_for_count(const int* count, int number) {
    if (*count == number) return;
    Fiber& own = fibers_[running_];
    own.word = count, own.number = number;
    own.waits_for = {"a count to be", number};
    leave();
  }

  const unsigned long long* gather(unsigned long long value) {
    give(value);
    wait_for_warp();
    return given();
  }

  void sync(std::size_t name, unsigned threads) {
    Meeting& meeting = meetings_[name];
    const std::uint64_t round = meeting.rounds + 1;
    meeting.arrive(threads);
    wait_until(meeting.rounds, round, {"named barrier", static_cast<std::int64_t>(name)});
  }
  void arrive(std::size_t name, unsigned threads) { meetings_[name].arrive(threads); }

  unsigned threads() const { return static_cast<unsigned>(fibers_.size()); }

  Barrier& barrier(unsigned address) {
    if (address % 8 != 0 || address >= kSharedBytes) {
      end_with("there is no barrier at " + std::to_string(address));
    }
    return barriers_[address];
  }

  void copy(std::function<void()> copy) {
    if (order_ == Order::early_copies)
      copy();
    else
      copies_.push_back(std::move(copy));
  }

  void add(std::function<void()> sum) {
    if (order_ == Order::early_copies)
      fibers_[running_].sums.push_back(std::move(sum));
    else
      sum();
  }
  void finish_sums() {
    for (const auto& sum : fibers_[running_].sums) sum();
    fibers_[running_].sums.clear();
  }

  // Copies of vectors happen at once, or when their group is waited for.
  void copy_vector(std::function<void()> vector) {
    if (order_ == Order::early_copies)
      vector();
    else
      fibers_[running_].vectors.push_back(std::move(vector));
  }
  void commit_vectors() {
    Fiber& own = fibers_[running_];
    own.vector_groups.push_back(std::exchange(own.vectors, {}));
  }
  void wait_for_vectors(std::size_t left) {
    auto& groups = fibers_[running_].vector_groups;
    for (; groups.size() > left; groups.erase(groups.begin())) {
      for (const auto& vector : groups.front()) vector();
    }
  }

  // The lane that gives its part last computes the product of its warp: the others wait until then,
  // and what they gave is on their stacks.
  void multiply_in_warp(const WarpProduct& product) {
    if (!give(reinterpret_cast<std::uintptr_t>(&product))) return wait_for_warp();
    std::array<const WarpProduct*, kLanes> lanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] =
          reinterpret_cast<const WarpProduct*>(static_cast<std::uintptr_t>(given()[lane]));
    }
    multiply(lanes);
  }

  void issue(const Product& product) { fibers_[running_].issued.push_back(product); }
  void commit() {
    Fiber& own = fibers_[running_];
    own.groups.push_back(std::move(own.issued));
    own.issued.clear();
    if (order_ == Order::late_copies) finish_products(0);
  }
  // The first lane that goes on computes the products of its warp.
  void finish_products(std::size_t left) {
    gather(0);  // all lanes have committed
    const std::span<Fiber> lanes(fibers_.data() + running_ / kLanes * kLanes, kLanes);
    while (fibers_[running_].groups.size() > left) {
      for (std::size_t i = 0; i < lanes[0].groups.front().size(); ++i) compute(lanes, i);
      for (Fiber& lane : lanes) lane.groups.erase(lane.groups.begin());
    }
  }

  void end_in_deadlock() { fail(deadlock()); }

  static Block* current;

 private:
  // Lets threads of a warp run that can. False if none could.
  bool run_warp(std::size_t warp) {
    const std::size_t first = warp * kLanes, count = std::min(kLanes, fibers_.size() - first);
    bool ran = false;
    for (std::size_t i = 0; i < count && error_.empty(); ++i) {
      running_ = first + (order_ == Order::early_copies ? i : count - 1 - i);
      Fiber& next = fibers_[running_];
      if (!next.can_run()) continue;
      ran = true;
      next.counter = nullptr, next.word = nullptr;
      threadIdx.x = static_cast<unsigned>(running_);
      stacks()[first_stack_ + running_].enter(run_kernel);
    }
    return ran;
  }

  struct alignas(1024) Memory {
    unsigned char bytes[kSharedBytes];
  };
  static std::deque<Memory>& memories() {
    static std::deque<Memory> memories;
    return memories;
  }
  static std::deque<Stack>& stacks() {
    static std::deque<Stack> stacks;
    return stacks;
  }

  static void run_kernel() {
    Block& block = *current;
    block.kernel_(block.arguments_);
    block.fibers_[block.running_].ended = true;
    --block.live_;
  }

  void leave() { stacks()[first_stack_ + running_].leave(); }

  // Gives a lane's value to its warp. True for the last lane.
  bool give(unsigned long long value) {
    Fiber& own = fibers_[running_];
    Warp& warp = warps_[running_ / kLanes];
    warp.slots[own.gathered++ % 2][running_ % kLanes] = value;
    const std::uint64_t rounds = warp.meeting.rounds;
    warp.meeting.arrive(
        static_cast<unsigned>(std::min(kLanes, fibers_.size() - running_ / kLanes * kLanes)));
    return warp.meeting.rounds != rounds;
  }
  void wait_for_warp() {
    wait_until(warps_[running_ / kLanes].meeting.rounds, fibers_[running_].gathered, {"its warp"});
  }
  // The values that the lanes gave last.
  const unsigned long long* given() const {
    return warps_[running_ / kLanes].slots[(fibers_[running_].gathered + 1) % 2].data();
  }

  bool copy_late() {
    if (copies_.empty()) return false;
    const auto copy = std::move(copies_.back());
    copies_.pop_back();
    copy();
    return true;
  }

  std::string deadlock() const {
    std::string text = "all threads wait:";
    Reason last;
    for (std::size_t i = 0; i < fibers_.size(); ++i) {
      if (fibers_[i].ended || fibers_[i].waits_for == last) continue;
      last = fibers_[i].waits_for;
      text += " thread " + std::to_string(i) + " for " + last.text() + ";";
    }
    return text;
  }

  // Row i of a, or column i of b: 32 bytes of a matrix in shared memory.
  static void read(std::uint64_t matrix, bool transposes, unsigned i, DType type, Line& line) {
    const auto begin = static_cast<unsigned>(matrix & 0x3fff) << 4;
    const auto panels = static_cast<unsigned>(matrix >> 16 & 0x3fff) << 4;
    const auto rows = static_cast<unsigned>(matrix >> 32 & 0x3fff) << 4;
    const unsigned swizzle = matrix >> 62 == 0 ? 0 : 256U >> (matrix >> 62);
    const unsigned width = swizzle == 0 ? kVector : swizzle;
    LineBits bits;
    if (transposes) {  // of 16-bit floats
      const unsigned first = begin + i * 2 / width * panels + i * 2 % width;
      for (unsigned k = 0; k < kDepth; ++k) {
        const unsigned at = swizzled(first + k / 8 * rows + k % 8 * width, swizzle);
        std::memcpy(bits.data() + 2 * k, shared_at(at, 2), 2);
      }
    } else {
      const unsigned first = begin + i / 8 * rows + i % 8 * width;
      for (unsigned k = 0; k < kBytes; k += kVector) {
        const unsigned at = swizzled(first + k, swizzle);
        std::memcpy(bits.data() + k, shared_at(at, kVector), kVector);
      }
    }
    widen(bits, type, line);
  }

  using Lanes = std::array<const Product*, kLanes>;

  // A row of a that four lanes have in registers: in each half, a word of each.
  static void read_fragments(const Lanes& lanes, unsigned row, Line& line) {
    LineBits bits;
    for (unsigned k = 0; k < kBytes; k += 4) {
      const Product& lane = *lanes[row % 8 * 4 + k % 16 / 4];
      std::memcpy(bits.data() + k, &lane.fragments[row / 8 + k / 16 * 2], 4);
    }
    widen(bits, lanes[0]->type, line);
  }

  // A warp's part of the product that is number i of the oldest group.
  void compute(std::span<const Fiber> fibers, std::size_t i) const {
    Lanes lanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = &fibers[lane].groups.front()[i];
    if (is_fp8(lanes[0]->type))
      multiply<true>(lanes);
    else
      multiply<false>(lanes);
  }

  template <bool kOf8Bits>
  __attribute__((target_clones("avx2", "default"))) void multiply(const Lanes& lanes) const {
    const Product& product = *lanes[0];
    const auto warp = static_cast<unsigned>(running_ / kLanes % 4);
    std::array<Line, kRows> a;
    Line b;
    for (unsigned row = 0; row < kRows; ++row) {
      if (product.has_fragments)
        read_fragments(lanes, row, a[row]);
      else
        read(product.a, product.transposes_a, kRows * warp + row, product.type, a[row]);
    }
    for (unsigned column = 0; column < static_cast<unsigned>(product.columns); ++column) {
      read(product.b, product.transposes_b, column, product.type, b);
      for (unsigned row = 0; row < kRows; ++row) {
        const Product& lane = *lanes[row % 8 * 4 + column % 8 / 2];
        float& c = lane.c[column / 8 * 4 + row / 8 * 2 + column % 2];
        c = (lane.adds ? c : 0) + dot<kOf8Bits>(a[row], b);
      }
    }
  }

  // Row i of a, or column i of b, of a product of a warp: in each half, a word of each of four
  // lanes.
  using WarpLanes = std::array<const WarpProduct*, kLanes>;
  static void read_row(const WarpLanes& lanes, unsigned i, Line& line) {
    LineBits bits;
    for (unsigned k = 0; k < kBytes; k += 4) {
      const unsigned lane = i % 8 * 4 + k % 16 / 4;
      std::memcpy(bits.data() + k, &lanes[lane]->a[i / 8 + k / 16 * 2], 4);
    }
    widen(bits, lanes[0]->type, line);
  }
  static void read_column(const WarpLanes& lanes, unsigned i, Line& line) {
    LineBits bits;
    for (unsigned k = 0; k < kBytes; k += 4) {
      std::memcpy(bits.data() + k, &lanes[i * 4 + k % 16 / 4]->b[k / 16], 4);
    }
    widen(bits, lanes[0]->type, line);
  }

  __attribute__((target_clones("avx2", "default"))) static void multiply(const WarpLanes& lanes) {
    Line row, columns[8];
    for (unsigned column = 0; column < 8; ++column) read_column(lanes, column, columns[column]);
    for (unsigned i = 0; i < kRows; ++i) {
      read_row(lanes, i, row);
      for (unsigned column = 0; column < 8; ++column) {
        lanes[i % 8 * 4 + column / 2]->c[i / 8 * 2 + column % 2] +=
            dot<false>(row, columns[column]);
      }
    }
  }

  HostKernel kernel_;
  void* const* arguments_;
  unsigned number_;
  std::size_t first_stack_;
  Order order_;
  unsigned char* memory_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::map<unsigned, Barrier> barriers_;  // keyed by address
  std::array<Meeting, kNames> meetings_;
  std::vector<std::function<void()>> copies_;
  std::size_t running_ = 0, live_ = 0;
  std::string error_;
};

Block* Block::current = nullptr;

Block& block() { return *Block::current; }

void complete_bytes(Barrier& barrier, std::int64_t bytes) {
  barrier.bytes -= bytes;
  barrier.end_phase_if_complete();
}

// A line of a box: adjacent elements of the innermost dimension. `from` is null past the tensor.
void copy_line(unsigned to, const TensorMap& map, const unsigned char* from, std::int64_t first) {
  for (unsigned i = 0; i < map.box[0]; ++i) {
    const std::int64_t x = first + i;
    unsigned char* const place =
        shared_at(swizzled(to + i * map.element_bytes, map.swizzle), map.element_bytes);
    if (from != nullptr && x >= 0 && x < map.dims[0]) {
      std::memcpy(place, from + x * map.element_bytes, map.element_bytes);
    } else {
      std::memset(place, 0, map.element_bytes);
    }
  }
}

void copy_box(unsigned to, const TensorMap& map, const std::array<int, 5>& first) {
  std::array<unsigned, 5> at{};
  const unsigned line = map.box[0] * map.element_bytes;
  while (true) {
    auto from = reinterpret_cast<std::uint64_t>(map.base);  // wraps around, as maps do
    bool is_there = true;
    for (unsigned i = 1; i < map.rank; ++i) {
      const std::int64_t x = first[i] + static_cast<std::int64_t>(at[i]);
      is_there = is_there && x >= 0 && x < map.dims[i];
      from += static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(map.strides[i - 1]);
    }
    copy_line(to, map, is_there ? reinterpret_cast<const unsigned char*>(from) : nullptr, first[0]);
    to += line;
    unsigned i = 1;
    while (i < map.rank && ++at[i] == map.box[i]) at[i++] = 0;
    if (i >= map.rank) return;
  }
}

unsigned long long exchange_of_block(unsigned long long bits, int lane_mask) {
  return block().gather(bits)[threadIdx.x % kLanes ^ static_cast<unsigned>(lane_mask)];
}

std::int64_t bytes_of_box(const TensorMap& map) {
  std::int64_t bytes = map.element_bytes;
  for (unsigned i = 0; i < map.rank; ++i) bytes *= map.box[i];
  return bytes;
}

}  // namespace

std::string run(HostKernel kernel, void* const* arguments, const Launch& launch, Order order) {
  if (launch.shared_bytes > kSharedBytes) return "it needs more shared memory than there is";
  const Extent before = blockDim;
  blockDim.x = launch.threads, gridDim.x = launch.blocks;
  const auto lanes_before = std::exchange(exchange, exchange_of_block);
  std::vector<std::unique_ptr<Block>> at_once(std::max(1U, launch.at_once));
  std::string error;
  unsigned begun = 0;
  for (bool some = true; some && error.empty();) {
    some = false;
    bool ran = false;
    for (std::size_t place = 0; place < at_once.size() && error.empty(); ++place) {
      std::unique_ptr<Block>& block = at_once[place];
      if (block == nullptr && begun < launch.blocks) {
        block = std::make_unique<Block>(kernel, arguments, begun++, place, launch.threads, order);
      }
      if (block == nullptr) continue;
      some = true;
      ran = block->run_all() || ran;
      error = block->error();
      if (block->has_ended()) block.reset();
    }
    if (!some || ran || !error.empty()) continue;
    for (const std::unique_ptr<Block>& block : at_once) {
      if (block == nullptr) continue;
      block->end_in_deadlock();
      if (error.empty()) error = block->error();
    }
  }
  blockDim = before, exchange = lanes_before;
  return error;
}

const unsigned long long* gather(unsigned long long own) { return block().gather(own); }
void sync_named(int name, int threads) {
  block().sync(static_cast<std::size_t>(name), static_cast<unsigned>(threads));
}
void arrive_named(int name, int threads) {
  block().arrive(static_cast<std::size_t>(name), static_cast<unsigned>(threads));
}
void sync_block() { block().sync(0, block().threads()); }
void trap() { block().end_with("a trap"); }

unsigned char* shared_memory() { return block().shared(); }
unsigned char* shared_at(unsigned address, std::size_t bytes) {
  if (address + bytes > kSharedBytes) {
    block().end_with("there is no shared memory at " + std::to_string(address));
  }
  return block().shared() + address;
}

void init_barrier(unsigned barrier, unsigned arrivals) {
  block().barrier(barrier) = {.arrivals = arrivals};
}
void arrive(unsigned barrier) {
  Barrier& at = block().barrier(barrier);
  ++at.arrived;
  at.end_phase_if_complete();
}
void expect_bytes(unsigned barrier, unsigned bytes) { block().barrier(barrier).bytes += bytes; }
bool is_done(unsigned barrier, unsigned parity) {
  return (block().barrier(barrier).phases & 1) != parity;
}
void wait(unsigned barrier, unsigned parity) {
  const Barrier& at = block().barrier(barrier);
  if (is_done(barrier, parity)) return;
  block().wait_until(at.phases, at.phases + 1, {"barrier", barrier, parity});
}

void copy_box(unsigned to, const TensorMap& map, unsigned barrier, const int* coordinates,
              int count) {
  if (count != map.rank) block().end_with("a box has another rank than its tensor");
  std::array<int, 5> first{};
  std::copy(coordinates, coordinates + count, first.begin());
  Barrier& at = block().barrier(barrier);
  block().copy([=, &at] {
    copy_box(to, map, first);
    complete_bytes(at, bytes_of_box(map));
  });
}

void copy_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  Barrier& at = block().barrier(barrier);
  block().copy([=, &at] {
    std::memcpy(shared_at(to, bytes), from, bytes);
    complete_bytes(at, bytes);
  });
}

void copy_vector(unsigned to, const void* from, std::size_t bytes) {
  unsigned char* const place = shared_at(to, bytes);
  block().copy_vector([=] {
    if (from == nullptr)
      std::memset(place, 0, bytes);
    else
      std::memcpy(place, from, bytes);
  });
}
void arrive_with_copies(unsigned barrier) {
  Barrier& at = block().barrier(barrier);
  block().copy([vectors = std::exchange(block().running().vectors, {}), &at] {
    for (const auto& vector : vectors) vector();
    ++at.arrived;
    at.end_phase_if_complete();
  });
}

void add_floats(float* to, unsigned from, unsigned bytes) {
  block().add([=] {
    const unsigned char* const values = shared_at(from, bytes);
    for (unsigned i = 0; i < bytes / sizeof(float); ++i) {
      float value = 0;
      std::memcpy(&value, values + i * sizeof value, sizeof value);
      to[i] += value;
    }
  });
}
void wait_for_count(const int* count, int number) { block().wait_for_count(count, number); }

void wait_for_sums() { block().finish_sums(); }

void commit_vectors() { block().commit_vectors(); }
void wait_for_vectors(int left) { block().wait_for_vectors(static_cast<std::size_t>(left)); }

void multiply(const Product& product) { block().issue(product); }
void multiply_in_warp(const WarpProduct& product) { block().multiply_in_warp(product); }
void commit_products() { block().commit(); }
void wait_for_products(int left) { block().finish_products(static_cast<std::size_t>(left)); }

}  // namespace attn::gpu

extern "C" void attn_run_on_gpu(HostKernel kernel, void* const* arguments,
                                const attn::gpu::Launch& launch, attn::gpu::Order order,
                                std::string& error) {
  error = attn::gpu::run(kernel, arguments, launch, order);
}
