// What both stand-ins do at every call: count, follow the script, remember what was wrong. Each
// library has a recorder of its own.
//
// No call takes a lock unless a script, the log or a violation makes it: locks here would order the
// threads of whoever is tested, and hide from ThreadSanitizer what they do not order themselves.
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
  checked,  // the caller must look at what it returns
  ignored,  // destroys and the like, and what cannot fail
};

// An entry point. Lives as long as the library.
class Site {
 public:
  Site(const char* name, Care care);

  static constexpr int kKinds = 64;
  const char* const name;
  const Care care;
  std::array<std::atomic<std::int64_t>, kKinds + 1> calls{};  // by kind; the last: of no kind
  Site* next = nullptr;
};

struct Verdict {
  int status = 0;     // 0: go on
  std::string words;  // for a status of cuDNN's
};

class Recorder {
 public:
  // Counts the call and does what the script says; `kind` is STANDIN_ANY where there is none.
  Verdict enter(Site& site, int kind = STANDIN_ANY);
  void violation(std::string text);

  // As StandinControl has them.
  void reset();
  void script(const StandinRule& rule);
  void release();
  std::int64_t blocked() const { return blocked_.load(std::memory_order_relaxed); }
  std::int64_t calls(const char* function, int kind) const;
  std::string violations() const;
  void record(bool on) { recording_.store(on, std::memory_order_relaxed); }
  std::string log() const;

  void add(Site& site);
  // How the log names a kind.
  void name_kinds(std::string (*name_of)(int)) { name_of_kind_ = name_of; }

 private:
  struct Rule {
    std::string function;  // empty: any that must be checked
    int kind;
    bool always;
    long left;  // calls until it acts, which it does once; unless always
    Verdict verdict;
    int delay_ms;
    bool blocks;
    std::int64_t since;  // how often there was a release() when it acted
  };
  // The rule that acts on this call, if any. Requires the lock.
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

// A violation that reads "<function>: <what>".
void violate(const char* function, const std::string& what);

// Fills in what every table has in common; `reset_more` is called by reset().
StandinControl make_control(void (*reset_more)(), std::int64_t (*live)(const char*));

// As snprintf.
std::size_t copy_text(const std::string& from, char* text, std::size_t size);

#define ATTN_STANDIN_EXPORT extern "C" __attribute__((visibility("default")))

}  // namespace attn::standin
