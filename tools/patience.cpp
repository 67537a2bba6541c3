#include "tools/patience.h"

#include <fmt/format.h>

#include <cmath>

namespace attn::tools {
namespace {

using ir::Dim;

constexpr double kShows = 2;    // seconds of which progress is shown
constexpr double kLong = 10;    // seconds that are announced
constexpr double kMost = 3600;  // that need --yes
constexpr double kShort = 60;   // of the sizes that are proposed

}  // namespace

double scores_of(const ir::Dims& dims) {
  double scores = 1;
  for (const Dim dim : {Dim::B, Dim::Hq, Dim::Sq, Dim::Skv}) {
    scores *= static_cast<double>(dims[dim]);
  }
  return scores;
}

Patience::Patience(const ir::Attention& attention, bool yes, LongWork work)
    : attention_(attention), yes_(yes), work_(std::move(work)), progress_(work_.name, 100) {}

std::string shorter(const ir::Attention& attention, double seconds, const LongWork& work) {
  ir::Dims dims = attention.dims;
  const double each = seconds / work.count(dims);
  const auto time = [&] { return each * work.count(dims); };
  if (time() > kShort) dims.set(Dim::B, 1);
  while (time() > kShort && (dims[Dim::Sq] > 1 || dims[Dim::Skv] > 1)) {
    for (const Dim dim : {Dim::Sq, Dim::Skv}) dims.set(dim, (dims[dim] + 1) / 2);
  }
  std::string text;
  for (const Dim dim : {Dim::B, Dim::Sq, Dim::Skv}) {
    if (dims[dim] == attention.dims[dim]) continue;
    text += fmt::format("--bind {}={} ", to_string(dim), dims[dim]);
  }
  return fmt::format("{}takes about {}", text, duration_text(time()));
}

Status Patience::begin(double seconds) {
  seconds *= work_.times;
  shows_ = seconds > kShows;
  const std::string what =
      fmt::format("{:.2g} {} on the CPU", work_.count(attention_.dims), work_.counted);
  if (seconds > kMost && !yes_) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("the {} would take about {} for {}", work_.name, duration_text(seconds), what),
        {shorter(attention_, seconds, work_), "--yes runs it all the same"}};
  }
  if (seconds > kLong) {
    tell_note(fmt::format("{}: about {} for {}; Ctrl-C ends it", work_.name, duration_text(seconds),
                          what));
    if (seconds > kShort) tell_note("smaller sizes: " + shorter(attention_, seconds, work_));
  }
  return {};
}

reference::Observer Patience::observer() {
  return {.begins = [this](double seconds) { return begin(seconds); },
          .advances =
              [this](std::int64_t done, std::int64_t rows) {
                show(static_cast<double>(done) / static_cast<double>(rows) / work_.times,
                     "percent of the rows");
              }};
}

void Patience::advance(double share) {
  show((1 + share * (work_.times - 1)) / work_.times, "percent of the parts");
}

Status tell_inputs(const ir::Attention& attention, const InputTexts& texts, Needs needs, bool yes,
                   double seconds_of_element) {
  LongWork work{"inputs", 1, "elements",
                [&](const ir::Dims& dims) { return elements_made(attention, texts, needs, dims); }};
  const double seconds = seconds_of_element * work.count(attention.dims);
  return Patience(attention, yes, std::move(work)).begin(seconds);
}

void Patience::show(double share, const char* of) {
  if (shows_) progress_.show(static_cast<std::size_t>(100 * share), of);
}

}  // namespace attn::tools
