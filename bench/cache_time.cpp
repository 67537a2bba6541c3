// Time of a lookup in the memory tier of the cache, in nanoseconds:
//   cache_time [--benchmark_filter=..] [other options of Google Benchmark]
// Entries are looked up at random. `kept` uses a Key that shares its text with the entry, as a Key
// kept from the first request does; `made` uses a new Key, whose text must be compared.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/cache/memory_cache.h"

namespace {

using namespace attn;

using Cache = cache::MemoryCache<const int>;

constexpr std::size_t kTextBytes = 8192;  // of a signature: 5 to 15 kB

cache::Key make_key(std::int64_t number) {
  plan::Signature signature;
  signature.text = fmt::format("{:>{}}", number, kTextBytes);
  signature.hash = hash128(signature.text);
  return cache::Key(std::move(signature));
}

cache::MemoryOptions room_for(std::int64_t entries) {
  cache::MemoryOptions options;
  options.values.entries = static_cast<std::size_t>(entries);
  return options;
}

struct Filled {
  explicit Filled(std::int64_t entries)
      : cache(
            room_for(entries), [](const int& /*value*/) { return sizeof(int); }, counters) {
    for (std::int64_t i = 0; i < entries; ++i) {
      keys.push_back(make_key(i));
      (void)cache.get(keys.back(), [i]() -> Result<Cache::Pointer> {
        return std::make_shared<const int>(static_cast<int>(i));
      });
    }
  }

  cache::Counters counters;
  Cache cache;
  std::vector<cache::Key> keys;
};

Result<Cache::Pointer> unexpected() { return {ErrorCode::internal, "missing key"}; }

std::unique_ptr<Filled> g_filled;  // set by SetUp, shared by all threads

void fill(const benchmark::State& state) { g_filled = std::make_unique<Filled>(state.range(0)); }
void drop(const benchmark::State& /*state*/) { g_filled.reset(); }

void look_up(benchmark::State& state, Cache& cache, const std::vector<cache::Key>& keys) {
  std::vector<std::uint32_t> order(std::size_t{1} << 14);
  std::mt19937 random(static_cast<unsigned>(state.thread_index()));
  std::ranges::generate(order, [&] { return random() % static_cast<unsigned>(keys.size()); });
  std::size_t i = 0;
  for (auto _ : state) {
    const auto found = cache.get(keys[order[i++ % order.size()]], &unexpected);
    ATTN_CHECK(found.ok(), "every key is in the cache");
    benchmark::DoNotOptimize(*found);
  }
}

void kept(benchmark::State& state) { look_up(state, g_filled->cache, g_filled->keys); }

void made(benchmark::State& state) {
  std::vector<cache::Key> keys;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(state.range(0), 10'000); ++i) {
    keys.push_back(make_key(i));
  }
  look_up(state, g_filled->cache, keys);
}

BENCHMARK(kept)->Arg(1)->Arg(1'000)->Arg(100'000)->Setup(fill)->Teardown(drop);
BENCHMARK(kept)
    ->Arg(1)
    ->Arg(1'000)
    ->Arg(100'000)
    ->Setup(fill)
    ->Teardown(drop)
    ->Threads(8)
    ->UseRealTime();
BENCHMARK(made)->Arg(1)->Arg(1'000)->Arg(100'000)->Setup(fill)->Teardown(drop);

}  // namespace

BENCHMARK_MAIN();
