// Reads the kernel parameters from a cubin, for the stand-in driver.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace attn::standin {

using Parameters = std::map<std::string, std::vector<std::size_t>>;  // bytes of each, by kernel

bool is_cubin(std::string_view image);

// Parses a cubin, which is trusted: a 64-bit ELF file with a section ".nv.info.NAME" for each
// kernel, in which an attribute of kind KPARAM_INFO describes each parameter.
Parameters parameters_of_cubin(const char* image);

}  // namespace attn::standin
