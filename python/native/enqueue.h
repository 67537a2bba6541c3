// Runs bound calls with the objects of an array. Internal to python/native.
#pragma once

#include <cstdint>

#include "bound_call.h"
#include "exchange.h"

namespace attn::python {

// As attn_bound_call_run, with one object for each tensor.
std::int32_t run(attn_bound_call& call, void* const* objects, attn_schedule* schedule, void* stream,
                 attn_error* error);

// Reads an object of the exchange's framework that is known to have the type. False, and no error
// of Python's, if it cannot.
bool read_tensor(const DlExchange& exchange, void* object, DlTensor& tensor);
bool has_type(void* object, void* type);

inline void* address_in(const DlTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

// Whether the driver is capturing what this thread enqueues on a stream; true if it does not say.
bool is_capturing(void* stream);

}  // namespace attn::python
