#include "tests/stress/stress.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

namespace attn::stress {

int times(int rounds) {
  const char* factor = std::getenv("ATTN_STRESS");
  return rounds * (factor == nullptr ? 1 : std::max(1, std::atoi(factor)));
}

void in_threads(int count, const std::function<void(int thread)>& body) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < count; ++thread) {
    threads.emplace_back([&body, thread] {
      try {
        body(thread);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void wait_until_blocked(std::int64_t calls) {
  while (standin::cudnn().control.blocked() < calls) std::this_thread::yield();
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace attn::stress
