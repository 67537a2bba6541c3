#include "compiler/target/deadline.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace attn::target {
namespace {

using Json = nlohmann::ordered_json;

double in_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Deadline::Deadline(std::chrono::nanoseconds limit, Now now, std::shared_ptr<const Deadline> outer)
    : limit_(limit),
      now_(std::move(now)),
      outer_(std::move(outer)),
      start_(now_()),
      since_(start_) {}

std::chrono::nanoseconds Deadline::left() const {
  const auto all = outer_ ? outer_->left() : std::chrono::nanoseconds::max();
  return limit_.count() > 0 ? std::min(all, limit_ - (now_() - start_)) : all;
}

void Deadline::restart() {
  start_ = since_ = now_();
  spent_.clear();
}

std::vector<Deadline::Spent> Deadline::all_spent() const {
  std::vector<Spent> all = spent_;
  const auto same = std::ranges::find(all, phase_, &Spent::first);
  if (same == all.end()) {
    all.emplace_back(phase_, now_() - since_);
  } else {
    same->second += now_() - since_;
  }
  return all;
}

std::string_view Deadline::begin(std::string_view phase) {
  spent_ = all_spent();
  since_ = now_();
  return std::exchange(phase_, phase);
}

Status Deadline::check() const {
  if (!is_over()) return {};
  if (outer_ && outer_->is_over()) return outer_->check();
  std::vector<Spent> all = all_spent();
  std::ranges::stable_sort(all, std::ranges::greater(), &Spent::second);
  std::string phases;
  Json payload = {{"timeout", in_seconds(limit_)}, {"phases", Json::object()}};
  for (const auto& [phase, time] : all) {
    const double seconds = in_seconds(time);
    payload["phases"][std::string(phase)] = seconds;
    if (seconds * 100 < in_seconds(limit_)) continue;
    phases += fmt::format("{}{:.3g} s {}", phases.empty() ? "" : ", ", seconds, phase);
  }
  return Error{ErrorCode::worker,
               fmt::format("the build took longer than {:.3g} s and was given up: {}",
                           in_seconds(limit_), phases),
               {"`--timeout SECONDS` gives each build more"},
               payload.dump()};
}

Deadline::Phase::Phase(Deadline* deadline, std::string_view name) : deadline_(deadline) {
  if (deadline_ != nullptr) before_ = deadline_->begin(name);
}

Deadline::Phase::~Phase() {
  if (deadline_ != nullptr) deadline_->begin(before_);
}

}  // namespace attn::target
