// Per-call bookkeeping of the stand-ins: counts calls, applies the script, records violations. Each
// library has its own recorder.
//
// Calls take no lock unless there is a script, a log or a violation: a lock would synchronize the
// tested threads and hide their data races from ThreadSanitizer.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/standin/standin.h"

namespace attn::standin {

enum class Care : std::uint8_t {
  checked,  // the caller must check the result
  ignored,  // destroy functions, and functions that cannot fail
};

// An entry point. Lives as long as the library.
class Site {
 public:
  Site(const char* name, Care care);

  static constexpr int kKinds = 64;
  const char* const name;
  const Care care;
  std::array<std::atomic<std::int64_t>, kKinds + 1>
      calls{};  // by kind; the last is for calls without kind
  Site* next = nullptr;
};

struct Verdict {
  int status = 0;     // 0: continue
  std::string words;  // error text for a cuDNN status
};

class Recorder {
 public:
  // Counts the call and applies the script. `kind` is STANDIN_ANY if there is none.
  Verdict enter(Site& site, int kind = STANDIN_ANY);
  // Adds to the log's line of this thread's last call.
  void detail(const std::string& words);
  void violation(std::string text);

  // As in StandinControl.
  void reset();
  void script(const StandinRule& rule);
  void release();
  std::int64_t blocked() const { return blocked_.load(std::memory_order_relaxed); }
  std::int64_t calls(const char* function, int kind) const;
  std::string violations() const;
  void record(bool on) { recording_.store(on, std::memory_order_relaxed); }
  std::string log() const;

  void add(Site& site);
  // Sets the function that names kinds in the log.
  void name_kinds(std::string (*name_of)(int)) { name_of_kind_ = name_of; }

 private:
  struct Rule {
    std::string function;  // empty: any whose result must be checked
    int kind;
    bool always;
    long left;  // calls until it acts (once), unless always
    Verdict verdict;
    int delay_ms;
    bool blocks;
    std::int64_t since;  // number of release() calls when it acted
  };
  // The rule that acts on this call, if any. The caller must hold the lock.
  std::optional<Rule> rule_for(const Site& site, int kind);
  void wait(const Rule& rule);

  std::atomic<Site*> sites_{nullptr};
  std::atomic<bool> scripted_{false};
  std::atomic<bool> recording_{false};
  std::atomic<std::int64_t> blocked_{0};
  mutable std::mutex mutex_;
  std::condition_variable released_;
  std::int64_t releases_ = 0;
  std::deque<Rule> rules_;
  std::vector<std::string> violations_;
  std::vector<std::string> log_;
  std::string (*name_of_kind_)(int) = nullptr;
};

Recorder& recorder();

// Records the violation "<function>: <what>".
void violate(const char* function, const std::string& what);

// Creates the control table of a library. reset() also calls `reset_more`.
StandinControl make_control(void (*reset_more)(), std::int64_t (*live)(const char*));

// Copies text with the semantics of snprintf.
std::size_t copy_text(const std::string& from, char* text, std::size_t size);

#define ATTN_STANDIN_EXPORT extern "C" __attribute__((visibility("default")))

}  // namespace attn::standin
