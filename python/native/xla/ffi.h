// The part of XLA's foreign function interface (FFI) that the handlers use, as its C API is laid
// out in memory in versions 0.1 to 0.4: https://openxla.org/xla/custom_call. The interface is
// stable by structures that begin with their size and grow at their end; XLA passes its table of
// functions in each call, so that nothing of XLA or jaxlib is included or linked. Addresses that
// are not used are void*. Internal to python/native/xla.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attn::xla::ffi {

// The oldest version whose structures these are, which the handlers report: newer runtimes serve
// it.
constexpr std::int32_t kMajor = 0;
constexpr std::int32_t kMinor = 1;
// The version in which the structures of states got a stage.
constexpr std::int32_t kMinorOfStages = 3;

struct Error;    // XLA's; null is success
struct Context;  // XLA's, of one call

// What XLA chains to a call to ask for more.
constexpr std::int32_t kMetadata = 1;
struct Extension {
  std::size_t size;
  std::int32_t type;
  Extension* next;
};

struct Version {
  std::size_t size;
  Extension* extensions;
  std::int32_t major, minor;
};

constexpr std::uint32_t kCommandBuffers = 1;  // the calls may be captured into CUDA graphs
struct Metadata {
  std::size_t size;
  Version version;
  std::uint32_t traits;
  // Newer ones have the type of the state here, which is 0 unless it was known before.
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

// Codes of errors, those of absl::Status.
enum class Code : std::int32_t {
  invalid_argument = 3,
  not_found = 5,
  resource_exhausted = 8,
  failed_precondition = 9,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15
};

struct Bytes {
  const char* begin;
  std::size_t size;
};

// Types of elements, those of xla::PrimitiveType.
enum class Type : std::int32_t {
  pred = 1,
  s8 = 2,
  s32 = 4,
  s64 = 5,
  u8 = 6,
  f16 = 10,
  f32 = 11,
  f64 = 12,
  bf16 = 16,
  f8e5m2 = 19,
  f8e4m3fn = 20,
  f8e8m0fnu = 33
};

struct Buffer {
  std::size_t size;
  Extension* extensions;
  Type type;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

// Arguments, and results alike.
constexpr std::int32_t kBuffer = 1;
struct Buffers {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  std::int32_t* kinds;
  void** buffers;
};

enum class Kind : std::int32_t { array = 1, dictionary = 2, scalar = 3, text = 4 };
struct Scalar {
  Type type;
  void* value;
};
struct Array {
  Type type;
  std::size_t count;
  void* data;
};
struct Attributes {  // sorted by name
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  Kind* kinds;
  Bytes** names;
  void** values;
};

struct TypeId {
  std::int64_t id;
};
struct TypeInfo {
  std::size_t size;
  Extension* extensions;
  void (*destroy)(void* object);
};

struct CreateError {
  std::size_t size;
  Extension* extensions;
  const char* message;
  Code code;
};
struct GetStream {
  std::size_t size;
  Extension* extensions;
  Context* context;
  void* stream;
};
struct GetDevice {
  std::size_t size;
  Extension* extensions;
  Context* context;
  std::int32_t ordinal;
};
struct RegisterType {
  std::size_t size;
  Extension* extensions;
  Bytes name;
  TypeId* type;          // 0: XLA chooses one
  const TypeInfo* info;  // since 0.2
};
// A state that lives as long as the executable of XLA that has the call: before 0.3, and since.
// Version 0.1 destroys it by `destroy`, later ones by the type's.
struct StateWithoutStage {
  std::size_t size;
  Extension* extensions;
  Context* context;
  TypeId* type;
  void* state;
  void (*destroy)(void* object);
};
struct StateOfStage {
  std::size_t size;
  Extension* extensions;
  Context* context;
  std::int32_t stage;
  TypeId* type;
  void* state;
};

// Functions of XLA. Those that are not used are void*.
struct Api {
  std::size_t size;
  Extension* extensions;
  Version version;
  const void* internal;

  Error* (*create_error)(CreateError* arguments);
  void* message_of_error;
  void* destroy_error;
  void* register_handler;
  Error* (*get_stream)(GetStream* arguments);
  Error* (*register_type)(RegisterType* arguments);
  void* context_get;
  Error* (*set_state)(void* arguments);
  Error* (*get_state)(void* arguments);
  void* allocate;
  void* free;
  void* schedule_on_threads;
  void* count_threads;
  void* create_future;
  void* future_is_available;
  void* future_failed;
  void* get_run;
  Error* (*get_device)(GetDevice* arguments);
};

constexpr std::int32_t kInstantiate = 0;

struct Call {
  std::size_t size;
  Extension* extensions;
  const Api* api;
  Context* context;
  std::int32_t stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
  void* future;
};

}  // namespace attn::xla::ffi
