// What every transport must do, whatever carries the bytes.
#pragma once

#include "runtime/ranks/transport.h"
#include "tests/unit/runtime/ranks/on_standins.h"

namespace attn::ranks {

// Each rank sends every other one two pieces, of one float and of two; returns all that arrived,
// the pieces of the lowest rank first.
inline std::vector<float> exchange_with_all(Transport& transport, const cuda::Device& device,
                                            void* stream) {
  std::vector<Floats> memory;
  std::vector<Piece> sends, receives;
  const auto piece = [&](int peer, std::vector<float> values) {
    memory.emplace_back(device, values);
    return Piece{peer, memory.back().data(), memory.back().bytes()};
  };
  std::vector<std::size_t> arrived;
  for (int peer = 0; peer < transport.ranks(); ++peer) {
    if (peer == transport.rank()) continue;
    const auto value = static_cast<float>(10 * transport.rank() + peer);
    sends.push_back(piece(peer, {value}));
    sends.push_back(piece(peer, {value + 100, value + 200}));
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}}) {
      arrived.push_back(memory.size());
      receives.push_back(piece(peer, std::vector<float>(count, -1)));
    }
  }
  const Status exchanged = transport.exchange(sends, receives, stream);
  EXPECT_TRUE(exchanged.ok()) << exchanged.error().to_text();
  std::vector<float> all;
  for (const std::size_t index : arrived) {
    const std::vector<float> values = memory[index].get();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline std::vector<float> expected_at(int rank, int ranks) {
  std::vector<float> all;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    const auto value = static_cast<float>(10 * peer + rank);
    all.insert(all.end(), {value, value + 100, value + 200});
  }
  return all;
}

}  // namespace attn::ranks
