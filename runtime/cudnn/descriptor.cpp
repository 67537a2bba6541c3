#include "runtime/cudnn/descriptor.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "runtime/cudnn/errors.h"
#include "runtime/cudnn/library.h"
#include "runtime/cudnn/newer.h"

namespace attn::cudnn {
namespace {

std::atomic<std::int64_t> live_descriptors{0};

// If the library is too old for the attribute or descriptor, reports that as the reason.
Error with_age(const Api& api, Error error, const char* name) {
  const std::int64_t first = since(name),
                     version = static_cast<std::int64_t>(api.cudnnGetVersion());
  if (first <= version) return error;
  error.code = ErrorCode::unsupported;
  error.notes.insert(error.notes.begin(), error.message);
  error.message = fmt::format("{} needs cuDNN {} or newer; this is {}", name, version_text(first),
                              version_text(version));
  return error;
}

}  // namespace

Result<Descriptor> Descriptor::create(const Api& api, const DescriptorKind& kind) {
  cudnnBackendDescriptor_t raw = nullptr;
  const cudnnStatus_t status = api.cudnnBackendCreateDescriptor(kind.type, &raw);
  if (status != CUDNN_STATUS_SUCCESS) {
    return with_age(api, call_error(api, status, fmt::format("create {}", kind.text)), kind.text);
  }
  return Descriptor(api, kind, raw);
}

Descriptor::Descriptor(const Api& api, const DescriptorKind& kind, cudnnBackendDescriptor_t raw)
    : api_(&api), kind_(kind), raw_(raw) {
  ++live_descriptors;
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : api_(other.api_), kind_(other.kind_), raw_(std::exchange(other.raw_, nullptr)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  api_ = other.api_;
  kind_ = other.kind_;
  raw_ = std::exchange(other.raw_, nullptr);
  return *this;
}

Descriptor::~Descriptor() { reset(); }

void Descriptor::reset() {
  if (raw_ == nullptr) return;
  api_->cudnnBackendDestroyDescriptor(std::exchange(raw_, nullptr));
  --live_descriptors;
}

std::int64_t Descriptor::live_count() { return live_descriptors; }

Error Descriptor::failed(cudnnStatus_t status, const char* verb, const char* attribute) const {
  const std::string call = fmt::format("{} {} of {}", verb, attribute, kind_.text);
  return with_age(*api_, call_error(*api_, status, call), attribute);
}

Status Descriptor::set_raw(const AttributeInfo& attribute, std::int64_t count,
                           const void* elements) {
  if (count < attribute.min_count || count > attribute.max_count) {
    return Status(ErrorCode::internal,
                  fmt::format("{} of {} must have {} to {} elements, not {}", attribute.text,
                              kind_.text, attribute.min_count, attribute.max_count, count));
  }
  const cudnnStatus_t status =
      api_->cudnnBackendSetAttribute(raw_, attribute.name, attribute.type, count, elements);
  if (status != CUDNN_STATUS_SUCCESS) return failed(status, "set", attribute.text);
  return Status();
}

Status Descriptor::get_one(const AttributeInfo& attribute, void* element) const {
  std::int64_t count = 0;
  const cudnnStatus_t status =
      api_->cudnnBackendGetAttribute(raw_, attribute.name, attribute.type, 1, &count, element);
  if (status != CUDNN_STATUS_SUCCESS) return failed(status, "get", attribute.text);
  if (count != 1) {
    return Status(ErrorCode::cudnn, fmt::format("cuDNN: {} of {} has {} elements, not one",
                                                attribute.text, kind_.text, count));
  }
  return Status();
}

Result<std::int64_t> Descriptor::count_of(const AttributeInfo& attribute) const {
  std::int64_t count = 0;
  const cudnnStatus_t status =
      api_->cudnnBackendGetAttribute(raw_, attribute.name, attribute.type, 0, &count, nullptr);
  if (status != CUDNN_STATUS_SUCCESS) return failed(status, "count", attribute.text);
  return count;
}

Result<std::string> Descriptor::get_text(const Attribute<CUDNN_TYPE_CHAR>& attribute) const {
  ATTN_ASSIGN(const std::int64_t size, count_of(attribute.info));
  std::string text(static_cast<std::size_t>(size), '\0');
  std::int64_t filled = 0;
  const cudnnStatus_t status = api_->cudnnBackendGetAttribute(
      raw_, attribute.info.name, attribute.info.type, size, &filled, text.data());
  if (status != CUDNN_STATUS_SUCCESS) return failed(status, "get", attribute.info.text);
  text.resize(text.find('\0') == std::string::npos ? text.size() : text.find('\0'));
  return text;
}

Result<std::vector<Descriptor>> Descriptor::get_descriptors(
    const Attribute<CUDNN_TYPE_BACKEND_DESCRIPTOR>& attribute, const DescriptorKind& kind) const {
  ATTN_ASSIGN(const std::int64_t announced, count_of(attribute.info));
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < announced; ++i) {
    ATTN_ASSIGN(Descriptor empty, create(*api_, kind));
    raw.push_back(empty.raw());
    found.push_back(std::move(empty));
  }
  if (announced == 0) return found;
  std::int64_t filled = 0;
  const cudnnStatus_t status = api_->cudnnBackendGetAttribute(
      raw_, attribute.info.name, attribute.info.type, announced, &filled, raw.data());
  if (status != CUDNN_STATUS_SUCCESS) return failed(status, "get", attribute.info.text);
  while (static_cast<std::int64_t>(found.size()) > filled) found.pop_back();
  return found;
}

DescriptorBuilder::DescriptorBuilder(const Api& api, const DescriptorKind& kind)
    : descriptor_(Descriptor::create(api, kind)) {}

DescriptorBuilder& DescriptorBuilder::set(const Attribute<CUDNN_TYPE_BACKEND_DESCRIPTOR>& attribute,
                                          const Descriptor& value) {
  const cudnnBackendDescriptor_t raw = value.raw();
  return set_raw(attribute.info, 1, &raw);
}

DescriptorBuilder& DescriptorBuilder::set_raw(const AttributeInfo& attribute, std::int64_t count,
                                              const void* elements) {
  if (!descriptor_.ok()) return *this;
  if (Status status = descriptor_->set_raw(attribute, count, elements); !status.ok()) {
    descriptor_ = status.error();
  }
  return *this;
}

Result<Descriptor> DescriptorBuilder::finalize() {
  if (!descriptor_.ok()) return descriptor_.error();
  const Descriptor& descriptor = *descriptor_;
  const cudnnStatus_t status = descriptor.api_->cudnnBackendFinalize(descriptor.raw());
  if (status != CUDNN_STATUS_SUCCESS) {
    return call_error(*descriptor.api_, status, fmt::format("finalize {}", descriptor.kind_.text));
  }
  return std::move(descriptor_);
}

}  // namespace attn::cudnn
