// Calls that a function of the process computes.
#include <array>
#include <atomic>
#include <vector>

#include "attn_xla.h"
#include "guarded.h"

namespace attn::xla {
namespace {

std::atomic<attn_xla_computer> current_computer{nullptr};
std::atomic<std::int64_t> running{0};  // calls that may be in it

// Counts a call while it lives.
struct Running {
  Running() { running.fetch_add(1); }
  ~Running() {
    if (running.fetch_sub(1) == 1) running.notify_all();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// False if an element type is none of attn.h.
bool read(const ffi::Buffers& buffers, std::vector<attn_xla_array>& arrays) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(buffers.count); ++i) {
    const ffi::Buffer* const buffer = buffer_of(buffers, i);
    const auto dtype = buffer == nullptr ? std::nullopt : dtype_of(buffer->type);
    if (!dtype) return false;
    arrays.push_back({buffer->data, buffer->dims, static_cast<std::int32_t>(buffer->rank), *dtype});
  }
  return true;
}

ffi::Error* compute(const ffi::Call& call) {
  const Running counted;
  const attn_xla_computer computer = current_computer.load();
  if (computer == nullptr) {
    return failure(
        call, ATTN_STATUS_UNSUPPORTED,
        std::string(
            "nothing here computes attentions of the CPU: import attn.jax, and do not end Python "
            "before they are done"));
  }
  const auto text = text_of(call, "request");
  std::vector<attn_xla_array> arguments, results;
  if (!text || !read(call.arguments, arguments) || !read(call.results, results)) {
    return failure(
        call, ATTN_STATUS_INVALID_ARGUMENT,
        std::string("a call has the attribute request (text), and arrays of known types"));
  }
  constexpr std::size_t kMostText = 8192;
  std::array<char, kMostText> message{};
  const attn_xla_request request{text->data(),   text->size(),   arguments.data(), arguments.size(),
                                 results.data(), results.size(), message.data(),   message.size()};
  const attn_status status = computer(&request);
  return status == ATTN_STATUS_OK ? nullptr : failure(call, status, std::string(message.data()));
}

}  // namespace
}  // namespace attn::xla

void* attn_xla_compute(void* call) { return attn::xla::guarded(call, attn::xla::compute); }

void attn_xla_set_computer(attn_xla_computer computer) {
  attn::xla::current_computer.store(computer);
  while (const std::int64_t calls = attn::xla::running.load()) attn::xla::running.wait(calls);
}
