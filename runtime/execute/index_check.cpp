#include "runtime/execute/index_check.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "runtime/execute/plan_kernel.h"
#include "runtime/graph/listing.h"

namespace attn::execute {
namespace {

constexpr std::uint64_t kNothing = ~std::uint64_t{0};

}  // namespace

IndexChecker::IndexChecker(plan::IndexCheck check, cuda::Device device, LoadedLaunch quick,
                           LoadedLaunch exact, std::unique_ptr<Word> word)
    : check_(std::move(check)),
      device_(std::move(device)),
      quick_(std::move(quick)),
      exact_(std::move(exact)),
      word_(std::move(word)) {}

Result<IndexChecker> IndexChecker::load(const plan::IndexCheck& check, const std::string& image,
                                        const cuda::Device& device,
                                        const cuda::AllocatorPointer& allocator) {
  ATTN_ASSIGN(const cuda::Module module, cuda::Module::load(device, image));
  ATTN_ASSIGN(LoadedLaunch quick, load_launch(module, plan::quick_launch(check), 1));
  ATTN_ASSIGN(LoadedLaunch exact, load_launch(module, plan::exact_launch(check), 1));
  auto word = std::make_unique<Word>();
  ATTN_ASSIGN(word->buffer, cuda::DeviceBuffer::allocate(device, kBytes, allocator));
  return IndexChecker(check, device, std::move(quick), std::move(exact), std::move(word));
}

Result<std::uint64_t> IndexChecker::word_after(const LoadedLaunch& loaded,
                                               const plan::Launch& launch, const Memory& memory,
                                               const Bases& bases, const cuda::Stream& on) const {
  ATTN_RETURN_IF_ERROR(word_->buffer.fill(0xff));
  const LaunchOperands operands(launch, memory, 0, word_->buffer.data());
  ATTN_ASSIGN(const LaunchArguments arguments, LaunchArguments::make(operands, bases, device_));
  ATTN_RETURN_IF_ERROR(loaded.kernel.launch(on.handle(), loaded.shape, arguments.data()));
  ATTN_RETURN_IF_ERROR(on.synchronize());
  std::uint64_t word = 0;
  ATTN_RETURN_IF_ERROR(word_->buffer.download(std::as_writable_bytes(std::span(&word, 1))));
  return word;
}

Status IndexChecker::run(const Memory& memory, const Bases& bases, void* stream) const {
  const std::lock_guard lock(word_->mutex);
  ATTN_ASSIGN(const cuda::Stream on, cuda::Stream::create(device_));
  if (stream != nullptr) {
    ATTN_ASSIGN(cuda::Event before, cuda::Event::create(device_, cuda::Event::Timing::no));
    ATTN_RETURN_IF_ERROR(before.record(stream));
    ATTN_RETURN_IF_ERROR(before.wait(on.handle()));
  }
  ATTN_ASSIGN(const std::uint64_t anything,
              word_after(quick_, plan::quick_launch(check_), memory, bases, on));
  if (anything != kNothing) {
    ATTN_ASSIGN(const std::uint64_t found,
                word_after(exact_, plan::exact_launch(check_), memory, bases, on));
    if (found != kNothing) return describe_fault(check_, found);
  }
  word_->was_right = true;
  return {};
}

Status IndexChecker::check_ran() const {
  if (word_->was_right) return {};
  return Error{ErrorCode::binding,
               "the values that scores are indexed by were not checked yet, which cannot be done "
               "while a CUDA graph is captured",
               {"bind or call it once before the capture"}};
}

Error describe_fault(const plan::IndexCheck& check, std::uint64_t found) {
  const std::size_t number = static_cast<std::size_t>(found & 0xffff);
  auto rest = static_cast<std::int64_t>(found >> 16);
  std::int64_t place[4] = {};
  for (std::size_t axis = 4; axis-- > 0;) {
    place[axis] = rest % check.scores[axis];
    rest /= check.scores[axis];
  }
  const plan::IndexCheck::Fault unknown{"an expression", "it has no value"};
  const bool known = number >= 1 && number <= check.faults.size();
  const plan::IndexCheck::Fault& fault = known ? check.faults[number - 1] : unknown;
  return {ErrorCode::binding,
          fmt::format("{}: {}, at b {}, h {}, row {}, column {}", escaped(fault.expression),
                      escaped(fault.what), place[0], place[1], place[2], place[3])};
}

}  // namespace attn::execute
