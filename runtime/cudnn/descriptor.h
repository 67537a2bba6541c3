// cuDNN backend descriptors as owned values, with typed attributes.
//
//   Result<Descriptor> tensor = DescriptorBuilder(api, kTensorDescriptor)
//                                   .set(kTensorUniqueId, std::int64_t{1})
//                                   .set_all(kTensorDimensions, dims)
//                                   .finalize();
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/attributes.h"

namespace attn::cudnn {

// Owns one cudnnBackendDescriptor_t. For one thread at a time. The library must outlive it.
class Descriptor {
 public:
  // Creates an empty descriptor of this kind, to receive what cuDNN returns.
  static Result<Descriptor> create(const Api& api, const DescriptorKind& kind);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  cudnnBackendDescriptor_t raw() const { return raw_; }
  const DescriptorKind& kind() const { return kind_; }

  // The attribute's only element.
  template <cudnnBackendAttributeType_t kType>
  Result<Element<kType>> get(const Attribute<kType>& attribute) const {
    Element<kType> value{};
    ATTN_RETURN_IF_ERROR(get_one(attribute.info, &value));
    return value;
  }
  // A CHAR attribute, without the terminating NUL.
  Result<std::string> get_text(const Attribute<CUDNN_TYPE_CHAR>& attribute) const;
  // A list of descriptors of one kind. If cuDNN fills fewer than it announced, the rest are
  // destroyed.
  Result<std::vector<Descriptor>> get_descriptors(
      const Attribute<CUDNN_TYPE_BACKEND_DESCRIPTOR>& attribute, const DescriptorKind& kind) const;

  // Number of live descriptors in this process.
  static std::int64_t live_count();

 private:
  friend class DescriptorBuilder;
  Descriptor(const Api& api, const DescriptorKind& kind, cudnnBackendDescriptor_t raw);

  void reset();
  Status set_raw(const AttributeInfo& attribute, std::int64_t count, const void* elements);
  Status get_one(const AttributeInfo& attribute, void* element) const;
  Result<std::int64_t> count_of(const AttributeInfo& attribute) const;
  Error failed(cudnnStatus_t status, const char* verb, const char* attribute) const;

  const Api* api_;
  DescriptorKind kind_;
  cudnnBackendDescriptor_t raw_;
};

// Sets attributes and finalizes. After the first failure further calls do nothing, and finalize()
// returns that failure.
class DescriptorBuilder {
 public:
  DescriptorBuilder(const Api& api, const DescriptorKind& kind);

  template <cudnnBackendAttributeType_t kType, std::same_as<Element<kType>> Value>
  DescriptorBuilder& set(const Attribute<kType>& attribute, Value value) {
    return set_raw(attribute.info, 1, &value);
  }
  DescriptorBuilder& set(const Attribute<CUDNN_TYPE_BACKEND_DESCRIPTOR>& attribute,
                         const Descriptor& value);
  template <cudnnBackendAttributeType_t kType>
  DescriptorBuilder& set_all(const Attribute<kType>& attribute,
                             std::span<const Element<kType>> values) {
    return set_raw(attribute.info, static_cast<std::int64_t>(values.size()), values.data());
  }

  Result<Descriptor> finalize();

 private:
  DescriptorBuilder& set_raw(const AttributeInfo& attribute, std::int64_t count,
                             const void* elements);

  Result<Descriptor> descriptor_;
};

}  // namespace attn::cudnn
