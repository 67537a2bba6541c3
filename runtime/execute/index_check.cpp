#include "runtime/execute/index_check.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "runtime/cuda/stream.h"
#include "runtime/execute/plan_kernel.h"
#include "runtime/graph/listing.h"

namespace attn::execute {
namespace {

constexpr std::uint64_t kNothing = ~std::uint64_t{0};

std::int64_t elements_of(const std::vector<std::int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

IndexChecker::IndexChecker(plan::IndexCheck check, cuda::Device device, cuda::Kernel quick,
                           cuda::Kernel exact, std::unique_ptr<Word> word)
    : check_(std::move(check)),
      device_(std::move(device)),
      quick_(std::move(quick)),
      exact_(std::move(exact)),
      word_(std::move(word)) {}

Result<IndexChecker> IndexChecker::load(const plan::IndexCheck& check, const std::string& image,
                                        const cuda::Device& device,
                                        const cuda::AllocatorPointer& allocator) {
  ATTN_ASSIGN(cuda::Kernel quick,
              load_plan_kernel(device, image, plan::kQuickCheckKernel, 1, check.inputs));
  ATTN_ASSIGN(cuda::Kernel exact,
              load_plan_kernel(device, image, plan::kExactCheckKernel, 1, check.inputs));
  auto word = std::make_unique<Word>();
  ATTN_ASSIGN(word->buffer, cuda::DeviceBuffer::allocate(device, kBytes, allocator));
  return IndexChecker(check, device, std::move(quick), std::move(exact), std::move(word));
}

Result<std::uint64_t> IndexChecker::word_after(const cuda::Kernel& kernel, std::int64_t threads,
                                               const Memory& memory, const Bases& bases) const {
  ATTN_RETURN_IF_ERROR(word_->buffer.fill(0xff));
  const KernelOperands operands(word_->buffer.data(), check_.inputs, memory);
  const KernelArguments arguments(operands, bases);
  ATTN_ASSIGN(const cuda::Stream stream, cuda::Stream::create(device_));
  ATTN_RETURN_IF_ERROR(kernel.launch(stream.handle(), threads, arguments.data()));
  ATTN_RETURN_IF_ERROR(stream.synchronize());
  std::uint64_t word = 0;
  ATTN_RETURN_IF_ERROR(word_->buffer.download(std::as_writable_bytes(std::span(&word, 1))));
  return word;
}

Status IndexChecker::run(const Memory& memory, const Bases& bases) const {
  const std::lock_guard lock(word_->mutex);
  ATTN_ASSIGN(const std::uint64_t anything, word_after(quick_, check_.quick, memory, bases));
  if (anything == kNothing) return {};
  ATTN_ASSIGN(const std::uint64_t found,
              word_after(exact_, elements_of(check_.scores), memory, bases));
  return found == kNothing ? Status() : describe_fault(check_, found);
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
                      escaped(fault.what), place[0], place[1], place[2], place[3]),
          {},
          {}};
}

}  // namespace attn::execute
