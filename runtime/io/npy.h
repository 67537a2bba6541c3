// NumPy's .npy files, format versions 1 and 2, little endian, C or Fortran order, any rank.
//
//   file            HostTensor::dtype        file           HostTensor::dtype
//   f2, f4, f8      f16, f32, f64            i1, u1         i8, u8
//   b1              boolean                  i2, i4, i8     i32, i32, i64
//
// The format has no bf16 and no 8-bit floats; store such tensors as f32.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::io {

// Values are in logical row-major order, whatever the file's order. Errors: io, for bytes that are
// not a .npy file, an unsupported version or element type, an invalid header, data too short or too
// long for the shape. Reads only `bytes`, and allocates no more than they justify.
Result<HostTensor> parse_npy(std::span<const std::byte> bytes);

// The same for a file; error messages begin with its path.
Result<HostTensor> read_npy(const std::string& path);

// Writes version 1, C order, the dtype of the tensor. Errors: invalid_argument for bf16 and 8-bit
// floats (write them as f32), a value that does not fit, or a wrong value count.
Result<std::vector<std::byte>> format_npy(const HostTensor& tensor);

// Errors: those of format_npy; io.
Status write_npy(const std::string& path, const HostTensor& tensor);

}  // namespace attn::io
