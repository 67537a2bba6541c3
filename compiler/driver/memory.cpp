#include "compiler/driver/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <numeric>
#include <vector>

#include "compiler/driver/driver.h"
#include "compiler/support/text.h"

namespace attn::driver {
namespace {

std::int64_t bytes_of(const plan::TensorInfo& tensor) {
  return std::accumulate(tensor.dims.begin(), tensor.dims.end(),
                         static_cast<std::int64_t>(size_of(tensor.dtype)), std::multiplies<>());
}

// The largest internal tensor, or null.
const plan::TensorInfo* largest(const plan::Program& program) {
  const auto found = std::ranges::max_element(program.internals, {}, bytes_of);
  return found == program.internals.end() ? nullptr : &*found;
}

// The learned tensors whose gradients need scores in memory, with or without a fused kernel.
std::vector<const ir::CapturedTensor*> kept_for(const ir::Attention& attention,
                                                const plan::Program& program) {
  std::vector<const ir::CapturedTensor*> learned;
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (tensor.role != plan::TensorRole::gradient || !tensor.name.starts_with("d_")) continue;
    if (const auto* found = attention.find_tensor(tensor.name.substr(2))) learned.push_back(found);
  }
  return learned;
}

std::string names_of(const std::vector<const ir::CapturedTensor*>& tensors) {
  std::string text;
  for (const ir::CapturedTensor* tensor : tensors) {
    text += fmt::format("{}`{}`", text.empty() ? "" : " and ", tensor->name);
  }
  return text;
}

bool is_of_scores(const plan::TensorInfo& tensor) { return tensor.name.starts_with("scores."); }

// Whether only a tile of the scores is in memory at a time.
bool has_tiles(const plan::Program& program) {
  return std::ranges::any_of(program.steps,
                             [](const plan::Step& step) { return plan::turns_of(step) > 1; });
}

std::string gigabytes(std::int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

struct Cause {
  ir::SourcePos pos;
  std::string what;
  std::string help;
};

constexpr const char* kFewer =
    "it grows with batches, heads and rows: split them over several calls";

// The cause where scores are tiled: copies of the inputs, sums, and one tile.
Cause cause_of_tiles(const ir::Attention& attention,
                     const std::vector<const ir::CapturedTensor*>& learned) {
  if (learned.empty()) {
    return {
        attention.pos,
        "without a fused kernel, copies of q, k, v and do and a tile of the scores are stored in "
        "memory",
        kFewer};
  }
  const std::string names = names_of(learned);
  return {
      learned.front()->pos,
      fmt::format("the gradient of {} needs copies of q, k, v and do, and a tile of the scores, "
                  "in memory",
                  names),
      fmt::format("{}; without {} in `grad` none of this is stored", kFewer, names)};
}

Cause cause_of(const ir::Attention& attention, const plan::Program& program,
               const plan::Memory& memory) {
  const plan::TensorInfo* most = largest(program);
  if (most == nullptr || memory.cudnn > bytes_of(*most)) {
    return {attention.pos, "most of it is the workspace of cuDNN's kernel",
            attention.deterministic ? "without `deterministic`, cuDNN stores nothing per score"
                                    : kFewer};
  }
  const std::vector<const ir::CapturedTensor*> learned = kept_for(attention, program);
  if (has_tiles(program)) return cause_of_tiles(attention, learned);
  if (!learned.empty() && is_of_scores(*most)) {
    const std::string names = names_of(learned);
    return {learned.front()->pos, fmt::format("the gradient of {} needs scores in memory", names),
            fmt::format("{}; without {} in `grad` no scores are stored", kFewer, names)};
  }
  if (is_of_scores(*most)) {
    return {attention.pos, "without a fused kernel, scores are stored in memory", kFewer};
  }
  if (most->name.starts_with("native.")) {
    return {attention.pos,
            fmt::format("most of it is `{}`, {}, of attnc's own kernels", most->name,
                        gigabytes(bytes_of(*most))),
            kFewer};
  }
  return {
      attention.pos,
      fmt::format("most of it is the derived tensor `{}`, {}", most->name,
                  gigabytes(bytes_of(*most))),
      "`attnc explain` shows its expression; use fewer indexes in it to make the tensor smaller"};
}

// The span of the word at `pos`.
support::Span span_at(const support::Source& source, ir::SourcePos pos) {
  const std::string_view text = source.text();
  const std::string_view line = source.line(std::max<std::uint32_t>(pos.line, 1));
  auto at = static_cast<std::size_t>(line.data() - text.data());
  const std::size_t end_of_line = at + line.size();
  for (std::uint32_t column = 1; column < pos.column && at < end_of_line; ++column) {
    at += support::code_point_bytes(text.substr(at));
  }
  std::size_t end = at;
  const auto is_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  while (end < end_of_line && is_of_word(text[end])) ++end;
  return {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(std::max(end, at))};
}

}  // namespace

void warn_of_memory(const ir::Attention& attention, const plan::Program& program,
                    const plan::Memory& memory, diag::Sink& sink) {
  if (memory.total() <= kMuchMemory) return;
  const Cause cause = cause_of(attention, program, memory);
  sink.report(diag::Code::much_memory, span_at(sink.source(), cause.pos),
              fmt::format("the {} needs {} besides its tensors: {}",
                          plan::to_string(plan::direction_of(program)), gigabytes(memory.total()),
                          cause.what))
      .help = cause.help;
}

void warn_of_memory(const ir::Attention& attention, diag::Sink& sink) {
  if (!attention.dims.bound()) return;
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
    if (direction == plan::Direction::backward && attention.gradients.empty()) continue;
    const Result<plan::Program> program = lower(attention, planner::kAnyLowering, direction);
    if (program.ok()) warn_of_memory(attention, *program, plan::memory_of(*program), sink);
  }
}

}  // namespace attn::driver
