#include "tests/unit/runtime/cudnn/fake_cudnn.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"

namespace attn::cudnn::testing {
namespace {

struct FakeDescriptor {
  cudnnBackendDescriptorType_t type;
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;  // ENGINEHEUR
  FakeConfig config;                                // ENGINECFG, ENGINE, EXECUTION_PLAN
};

FakeCudnn* current = nullptr;

FakeDescriptor* of(cudnnBackendDescriptor_t raw) { return static_cast<FakeDescriptor*>(raw); }

const char* error_string(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

void last_error_string(char* text, std::size_t size) {
  const std::size_t count = std::min(current->last_words.size(), size - 1);
  std::memcpy(text, current->last_words.data(), count);
  text[count] = '\0';
  current->last_words.clear();
}

cudnnStatus_t create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* raw) {
  *raw = new FakeDescriptor{type, {}, {}};
  current->most_live = std::max(current->most_live, ++current->live);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy(cudnnBackendDescriptor_t raw) {
  delete of(raw);
  --current->live;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t raw) {
  const FakeDescriptor& descriptor = *of(raw);
  if (descriptor.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    current->planned_engines.push_back(descriptor.config.engine);
    if (descriptor.config.plan_status != CUDNN_STATUS_SUCCESS) {
      current->last_words = descriptor.config.words;
      return descriptor.config.plan_status;
    }
  }
  const auto failure = current->fail_finalize.find(descriptor.type);
  return failure == current->fail_finalize.end() ? CUDNN_STATUS_SUCCESS : failure->second;
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

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t raw, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* elements) {
  ++current->set_calls;
  FakeDescriptor& descriptor = *of(raw);
  if (name == CUDNN_ATTR_ENGINEHEUR_MODE) {
    descriptor.mode = *static_cast<const cudnnBackendHeurMode_t*>(elements);
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
    descriptor.config = of(*static_cast<void* const*>(elements))->config;
  }
  current->last_set[name] = std::string(static_cast<const char*>(elements),
                                        static_cast<std::size_t>(count) * size_of(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_configs(const FakeDescriptor& heuristics, std::int64_t requested,
                          std::int64_t* count, void* elements) {
  const FakeOffer& offer = current->offers[heuristics.mode];
  current->last_words = offer.words;
  if (offer.status != CUDNN_STATUS_SUCCESS) return offer.status;
  *count = static_cast<std::int64_t>(offer.configs.size());
  if (requested == 0) {
    *count += offer.surplus;
    return CUDNN_STATUS_SUCCESS;
  }
  for (std::size_t i = 0; i < offer.configs.size(); ++i) {
    of(static_cast<cudnnBackendDescriptor_t*>(elements)[i])->config = offer.configs[i];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_text(std::int64_t requested, std::int64_t* count, void* elements) {
  constexpr char kPlan[] = "{\"plan\":1}";
  *count = sizeof(kPlan);
  if (requested > 0) std::memcpy(elements, kPlan, sizeof(kPlan));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t raw, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, std::int64_t requested,
                            std::int64_t* count, void* elements) {
  const FakeDescriptor& descriptor = *of(raw);
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return get_configs(descriptor, requested, count, elements);
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: *count = 0; return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: return get_text(requested, count, elements);
    default: *count = 1; break;
  }
  if (requested == 0) return CUDNN_STATUS_SUCCESS;
  switch (name) {
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      of(*static_cast<cudnnBackendDescriptor_t*>(elements))->config = descriptor.config;
      break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      *static_cast<std::int64_t*>(elements) = descriptor.config.engine;
      break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *static_cast<std::int64_t*>(elements) = 4096;
      break;
    default: return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t execute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  ++current->executions;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

FakeCudnn::FakeCudnn() {
  ATTN_CHECK(current == nullptr, "one fake at a time");
  current = this;
  api_.cudnnGetErrorString = error_string;
  api_.cudnnGetLastErrorString = last_error_string;
  api_.cudnnGetVersion = [] { return std::size_t{91900}; };
  api_.cudnnBackendCreateDescriptor = create;
  api_.cudnnBackendDestroyDescriptor = destroy;
  api_.cudnnBackendFinalize = finalize;
  api_.cudnnBackendSetAttribute = set_attribute;
  api_.cudnnBackendGetAttribute = get_attribute;
  api_.cudnnBackendExecute = execute;
}

FakeCudnn::~FakeCudnn() { current = nullptr; }

}  // namespace attn::cudnn::testing
