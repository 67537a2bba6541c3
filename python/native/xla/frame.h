// What the handlers read of a call, and the errors that they return. Internal to python/native/xla.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attn.h"
#include "ffi.h"

namespace attn::xla {

// An error of the call's XLA: a status of attn.h, and what to say of it.
ffi::Error* failure(const ffi::Call& call, attn_status status, const std::string& text);
// The same of what a function of attn.h said.
ffi::Error* failure(const ffi::Call& call, attn_status status, const attn_error* error);

// Answers what XLA asks for when a handler is registered. False if the call is an ordinary one.
bool answers_metadata(const ffi::Call& call);

// Whether the call's XLA has all functions that handlers need.
bool is_served(const ffi::Call& call);

// Attributes; nothing if there is none of this name and type.
std::optional<std::string_view> text_of(const ffi::Call& call, std::string_view name);
std::optional<std::int64_t> integer_of(const ffi::Call& call, std::string_view name);
std::optional<std::span<const double>> reals_of(const ffi::Call& call, std::string_view name);

// Buffers by their places; null if it is none.
const ffi::Buffer* buffer_of(const ffi::Buffers& buffers, std::size_t place);
// The elements of a buffer, and the bytes of one; 0 for a type that no plan has.
std::int64_t count_of(const ffi::Buffer& buffer);
std::int64_t element_bytes(ffi::Type type);
// The type of XLA for one of attn.h, and the other way.
std::optional<ffi::Type> type_of(attn_dtype dtype);
std::optional<attn_dtype> dtype_of(ffi::Type type);

}  // namespace attn::xla
