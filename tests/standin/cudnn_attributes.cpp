// The attributes of each kind of descriptor, and reading them.
#include <algorithm>
#include <string_view>

#include "tests/standin/cudnn_state.h"

namespace attn::standin {
namespace {

using cudnn::AttributeInfo;

constexpr cudnn::DescriptorKind kKinds[] = {
#define ATTN_DESCRIPTOR_KIND(constant, name) cudnn::constant,
#include "runtime/cudnn/descriptor_kinds.def"
#undef ATTN_DESCRIPTOR_KIND
};

constexpr AttributeInfo kAttributes[] = {
#define ATTN_ATTRIBUTE(constant, name, type, min, max) cudnn::constant.info,
#include "runtime/cudnn/attributes.def"
#undef ATTN_ATTRIBUTE
};

template <typename T>
cudnnStatus_t give(T value, std::int64_t requested, std::int64_t* count, void* elements) {
  *count = 1;
  if (requested > 0) std::memcpy(elements, &value, sizeof(value));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_text(const std::string& text, std::int64_t requested, std::int64_t* count,
                        void* elements) {
  *count = static_cast<std::int64_t>(text.size()) + 1;
  const std::int64_t copied = std::min(requested, *count);
  if (copied > 0) std::memcpy(elements, text.c_str(), static_cast<std::size_t>(copied));
  return CUDNN_STATUS_SUCCESS;
}

// Fills the caller's empty descriptors; `make` fills the i-th.
template <typename Make>
cudnnStatus_t give_descriptors(std::int64_t there, cudnnBackendDescriptorType_t kind,
                               std::int64_t requested, std::int64_t* count, void* elements,
                               const Make& make) {
  *count = there;
  for (std::int64_t i = 0; i < std::min(requested, there); ++i) {
    Descriptor* empty = descriptors().find(static_cast<void**>(elements)[i]);
    if (empty == nullptr || empty->type != kind || empty->finalized) {
      return breach("cudnnBackendGetAttribute", CUDNN_STATUS_BAD_PARAM,
                    "the caller's descriptors are not empty ones of the right kind");
    }
    make(*empty, static_cast<std::size_t>(i));
    empty->finalized = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_configs(const Descriptor& heuristics, std::int64_t requested,
                           std::int64_t* count, void* elements) {
  const auto mode = heuristics.find(CUDNN_ATTR_ENGINEHEUR_MODE)->at<cudnnBackendHeurMode_t>();
  const Offer offer = offer_of(mode);
  const auto there = static_cast<std::int64_t>(heuristics.offered.size());
  const cudnnStatus_t status =
      give_descriptors(there, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, requested, count, elements,
                       [&](Descriptor& config, std::size_t i) {
                         config.config = heuristics.offered[i];
                         config.work = heuristics.work;
                       });
  if (requested == 0) *count += offer.surplus;
  return status;
}

}  // namespace

const Elements* Descriptor::find(cudnnBackendAttributeName_t name) const {
  const auto found = set.find(name);
  return found == set.end() ? nullptr : &found->second;
}

std::string kind_name(int kind) {
  for (const cudnn::DescriptorKind& known : kKinds) {
    if (static_cast<int>(known.type) == kind) return known.text;
  }
  return "";
}

const AttributeInfo* find_attribute(cudnnBackendAttributeName_t name) {
  const auto* found = std::ranges::find(kAttributes, name, &AttributeInfo::name);
  return found == std::end(kAttributes) ? nullptr : found;
}

// An attribute's name begins with the name of its kind; the longest match counts.
bool belongs(const AttributeInfo& attribute, cudnnBackendDescriptorType_t kind) {
  const std::string_view text = attribute.text;
  std::string_view longest;
  for (const cudnn::DescriptorKind& known : kKinds) {
    const std::string prefix = std::string(known.text) + '_';
    if (text.starts_with(prefix) && prefix.size() > longest.size()) longest = known.text;
  }
  return longest == kind_name(kind);
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;  // floats and enumerations
  }
}

cudnnStatus_t read(const Descriptor& descriptor, const AttributeInfo& attribute,
                   std::int64_t requested, std::int64_t* count, void* elements) {
  const Config& config = descriptor.config;
  switch (attribute.name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      const cudnnStatus_t status = give_configs(descriptor, requested, count, elements);
      const Offer offer =
          offer_of(descriptor.find(CUDNN_ATTR_ENGINEHEUR_MODE)->at<cudnnBackendHeurMode_t>());
      if (!offer.words.empty()) say(offer.words);
      return status == CUDNN_STATUS_SUCCESS ? static_cast<cudnnStatus_t>(offer.status) : status;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      return give_descriptors(1, CUDNN_BACKEND_ENGINE_DESCRIPTOR, requested, count, elements,
                              [&](Descriptor& engine, std::size_t) { engine.config = config; });
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      return give_descriptors(
          static_cast<std::int64_t>(config.knobs.size()), CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
          requested, count, elements,
          [&](Descriptor& choice, std::size_t i) { choice.knob = config.knobs[i]; });
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      return give(static_cast<cudnnBackendKnobType_t>(descriptor.knob.first), requested, count,
                  elements);
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      return give(descriptor.knob.second, requested, count, elements);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: return give(config.engine, requested, count, elements);
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
      return give(engine_count(), requested, count, elements);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give(descriptor.work->workspace, requested, count, elements);
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
      return give_text(descriptor.json, requested, count, elements);
    default: return breach("cudnnBackendGetAttribute", CUDNN_STATUS_BAD_PARAM, attribute.text);
  }
}

}  // namespace attn::standin
