// NumPy's .npy files, format versions 1 and 2, little endian, C or Fortran order, any rank.
//
//   file            HostTensor::dtype        file           HostTensor::dtype
//   f2, f4, f8      f16, f32, f64            i1, u1         i8, u8
//   b1              boolean                  i2, i4, i8     i32, i32, i64
//
// bf16 does not exist in the format: floats of any width are rounded by whoever uses them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::io {

// Values come back in logical row-major order whatever the file's. Errors: io, for bytes that are
// no .npy file, a version or element type that is not read (which one, and which are), a header
// that does not parse, data too short or too long for the shape, an i64 beyond 2^53. Reads nothing
// past `bytes` and allocates no more than they warrant.
Result<HostTensor> parse_npy(std::span<const std::byte> bytes);

// The same for a file; messages begin with its path.
Result<HostTensor> read_npy(const std::string& path);

// Version 1, C order, the dtype of the tensor. Errors:
// invalid_argument for bf16 (write it as f32), a value that does not fit, or a wrong value count.
Result<std::vector<std::byte>> format_npy(const HostTensor& tensor);

// Errors: those of format_npy; io.
Status write_npy(const std::string& path, const HostTensor& tensor);

}  // namespace attn::io
