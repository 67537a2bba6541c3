// The parts of DLPack 1.x that a call needs: https://github.com/dmlc/dlpack,
// include/dlpack/dlpack.h. Python objects are void*: nothing here depends on Python or PyTorch.
#pragma once

#include <cstdint>

namespace attn::python {

struct DlVersion {
  std::uint32_t major, minor;
};

struct DlDevice {
  std::int32_t type, id;
};

struct DlDtype {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

struct DlTensor {
  void* data;
  DlDevice device;
  std::int32_t rank;
  DlDtype dtype;
  std::int64_t* dims;
  std::int64_t* strides;  // in elements; null: dense row-major
  std::uint64_t byte_offset;
};

struct DlManagedTensor {
  DlVersion version;
  void* manager_context;
  void (*deleter)(DlManagedTensor* self);
  std::uint64_t flags;
  DlTensor tensor;
};

struct DlExchangeHeader {
  DlVersion version;
  DlExchangeHeader* previous;
};

// Functions return 0, or -1 with Python's error set; the allocator calls `set_error` instead.
struct DlExchange {
  DlExchangeHeader header;
  int (*allocate)(DlTensor* prototype, DlManagedTensor** tensor, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, DlManagedTensor** tensor);
  int (*object_from_managed)(DlManagedTensor* tensor, void** object);  // takes the tensor
  int (*tensor_from_object)(void* object, DlTensor* tensor);           // may be null
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** stream);
};

}  // namespace attn::python
