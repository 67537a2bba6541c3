#include "tests/standin/recorder.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace attn::standin {
namespace {

constexpr std::size_t kMostLines = 100000;
void (*reset_library)() = nullptr;
thread_local std::size_t last_line = kMostLines;  // of this thread's last call; kMostLines: none

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::size_t index_of(int kind) {
  return static_cast<std::size_t>(kind >= 0 && kind < Site::kKinds ? kind : Site::kKinds);
}

}  // namespace

Recorder& recorder() {
  static Recorder one;
  return one;
}

void violate(const char* function, const std::string& what) {
  recorder().violation(std::string(function) + ": " + what);
}

Site::Site(const char* its_name, Care its_care) : name(its_name), care(its_care) {
  recorder().add(*this);
}

void Recorder::add(Site& site) {
  const std::lock_guard lock(mutex_);
  site.next = sites_.load(std::memory_order_relaxed);
  sites_.store(&site, std::memory_order_release);
}

Verdict Recorder::enter(Site& site, int kind) {
  site.calls[index_of(kind)].fetch_add(1, std::memory_order_relaxed);
  last_line = kMostLines;
  if (recording_.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(mutex_);
    std::string line = site.name;
    if (kind >= 0 && name_of_kind_ != nullptr) line += ' ' + name_of_kind_(kind);
    last_line = log_.size();
    if (log_.size() < kMostLines) log_.push_back(std::move(line));
  }
  if (!scripted_.load(std::memory_order_relaxed)) return {};
  std::unique_lock lock(mutex_);
  const std::optional<Rule> rule = rule_for(site, kind);
  lock.unlock();
  if (!rule) return {};
  wait(*rule);
  return rule->verdict;
}

std::optional<Recorder::Rule> Recorder::rule_for(const Site& site, int kind) {
  std::optional<Rule> acting;
  for (Rule& rule : rules_) {
    const bool named =
        rule.function.empty() ? site.care == Care::checked : rule.function == site.name;
    if (!named || (rule.kind != STANDIN_ANY && rule.kind != kind)) continue;
    const bool acts = rule.always || --rule.left == 0;
    if (acts && !acting) acting = rule;
  }
  if (acting) acting->since = releases_;
  std::erase_if(rules_, [](const Rule& rule) { return !rule.always && rule.left <= 0; });
  return acting;
}

void Recorder::wait(const Rule& rule) {
  if (rule.delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(rule.delay_ms));
  if (!rule.blocks) return;
  std::unique_lock lock(mutex_);
  blocked_.fetch_add(1, std::memory_order_relaxed);
  released_.wait(lock, [&] { return releases_ != rule.since; });
  blocked_.fetch_sub(1, std::memory_order_relaxed);
}

void Recorder::detail(const std::string& words) {
  if (last_line == kMostLines) return;
  const std::lock_guard lock(mutex_);
  if (last_line < log_.size()) log_[last_line] += ' ' + words;
}

void Recorder::violation(std::string text) {
  const std::lock_guard lock(mutex_);
  if (violations_.size() < kMostLines) violations_.push_back(std::move(text));
}

void Recorder::reset() {
  const std::lock_guard lock(mutex_);
  rules_.clear();
  scripted_.store(false, std::memory_order_relaxed);
  recording_.store(false, std::memory_order_relaxed);
  violations_.clear();
  log_.clear();
  for (Site* site = sites_.load(); site != nullptr; site = site->next) {
    for (auto& count : site->calls) count.store(0, std::memory_order_relaxed);
  }
}

void Recorder::script(const StandinRule& rule) {
  const std::lock_guard lock(mutex_);
  rules_.push_back({rule.function != nullptr ? rule.function : "",
                    rule.kind,
                    rule.nth == 0,
                    rule.nth,
                    {rule.status, rule.words != nullptr ? rule.words : ""},
                    rule.delay_ms,
                    rule.block != 0,
                    0});
  scripted_.store(true, std::memory_order_relaxed);
}

void Recorder::release() {
  const std::lock_guard lock(mutex_);
  ++releases_;
  std::erase_if(rules_, [](const Rule& rule) { return rule.blocks; });
  released_.notify_all();
}

std::int64_t Recorder::calls(const char* function, int kind) const {
  std::int64_t sum = 0;
  for (const Site* site = sites_.load(); site != nullptr; site = site->next) {
    const bool named =
        function == nullptr ? site->care == Care::checked : std::strcmp(function, site->name) == 0;
    if (!named) continue;
    for (std::size_t i = 0; i < site->calls.size(); ++i) {
      if (kind == STANDIN_ANY || i == index_of(kind)) {
        sum += site->calls[i].load(std::memory_order_relaxed);
      }
    }
  }
  return sum;
}

std::string Recorder::violations() const {
  const std::lock_guard lock(mutex_);
  return joined(violations_);
}

std::string Recorder::log() const {
  const std::lock_guard lock(mutex_);
  return joined(log_);
}

std::size_t copy_text(const std::string& from, char* text, std::size_t size) {
  if (size > 0) {
    const std::size_t count = std::min(from.size(), size - 1);
    std::memcpy(text, from.data(), count);
    text[count] = '\0';
  }
  return from.size();
}

StandinControl make_control(void (*reset_more)(), std::int64_t (*live)(const char*)) {
  reset_library = reset_more;
  StandinControl control{};
  control.reset = [] {
    recorder().reset();
    reset_library();
  };
  control.script = [](const StandinRule* rule) { recorder().script(*rule); };
  control.release = [] { recorder().release(); };
  control.blocked = [] { return recorder().blocked(); };
  control.calls = [](const char* function, int kind) { return recorder().calls(function, kind); };
  control.live = live;
  control.violations = [](char* text, std::size_t size) {
    return copy_text(recorder().violations(), text, size);
  };
  control.record = [](int on) { recorder().record(on != 0); };
  control.log = [](char* text, std::size_t size) {
    return copy_text(recorder().log(), text, size);
  };
  return control;
}

}  // namespace attn::standin
