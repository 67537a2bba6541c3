// A fake cuDNN that crashes on a tanh, to test how the compiler handles crashes inside cuDNN.
#include <cudnn_graph.h>

#include <csignal>
#include <cstddef>
#include <cstdint>

namespace {

struct Descriptor {
  cudnnBackendDescriptorType_t type;
};

bool saw_tanh = false;

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() { return 91900; }
std::size_t cudnnGetCudartVersion() { return 13000; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char* message, std::size_t size) {
  if (size > 0) message[0] = 0;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t*) { return CUDNN_STATUS_NOT_INITIALIZED; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t,
                                       const void* elements) {
  if (name == CUDNN_ATTR_POINTWISE_MODE) {
    saw_tanh = *static_cast<const cudnnPointwiseMode_t*>(elements) == CUDNN_POINTWISE_TANH_FWD;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const auto type = static_cast<Descriptor*>(descriptor)->type;
  if (saw_tanh && type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) std::raise(SIGSEGV);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                       cudnnBackendAttributeType_t, std::int64_t,
                                       std::int64_t* count, void*) {
  *count = 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t,
                                  cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_NOT_SUPPORTED;
}

}  // extern "C"
