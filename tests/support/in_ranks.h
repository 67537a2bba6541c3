// Ranks that are threads of a test.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <thread>
#include <vector>

namespace attn::testing {

// Runs body(0), body(1), .. in a thread each. Exceptions are failures of the test.
template <typename Body>
void in_ranks(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace attn::testing
