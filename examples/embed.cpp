// The smallest application: load a plan file, bind device memory by name, execute, read back.
//
//   attnc compile specs/causal.attn --target h200 -o causal.attnplan
//   embed causal.attnplan
//
// It works for every plan without params: inputs are random, outputs are printed in part.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/executable.h"
#include "runtime/io/layout.h"
#include "runtime/io/random.h"

namespace {

using namespace attn;

// Device memory of the size that the plan wants, with random values in it. An application has its
// own tensors, from any allocator; all that matters is a device address.
Result<cuda::DeviceBuffer> make_tensor(const cuda::Device& device, const plan::TensorInfo& info) {
  std::vector<double> values(static_cast<std::size_t>(io::element_count(info.dims)), 0.0);
  if (is_float(info.dtype) && !info.is_output()) {
    values = io::normal_values(io::seed_of(info.name), io::element_count(info.dims));
  }
  ATTN_ASSIGN(const auto bytes, io::pack(values, info.dims, info.strides, info.dtype));
  ATTN_ASSIGN(cuda::DeviceBuffer buffer, cuda::DeviceBuffer::allocate(device, bytes.size()));
  ATTN_RETURN_IF_ERROR(buffer.upload(bytes));
  return buffer;
}

Status print_start(const plan::TensorInfo& info, const cuda::DeviceBuffer& buffer) {
  std::vector<std::byte> bytes(buffer.size());
  ATTN_RETURN_IF_ERROR(buffer.download(bytes));
  ATTN_ASSIGN(const auto tensor, io::unpack(bytes, info.dims, info.strides, info.dtype));
  std::printf("%s:", info.name.c_str());
  for (std::size_t i = 0; i < tensor.values.size() && i < 4; ++i) {
    std::printf(" %g", tensor.values[i]);
  }
  std::printf(" ...\n");
  return {};
}

Status run(const std::string& path) {
  ATTN_ASSIGN(auto executable, execute::Executable::load_file(path));

  std::map<std::string, cuda::DeviceBuffer> memory;
  execute::Arguments arguments;
  for (const plan::TensorInfo& info : executable.program().tensors) {
    ATTN_ASSIGN(memory[info.name], make_tensor(executable.device(), info));
    arguments.tensor(info.name, {memory[info.name].data(), info.dtype, info.dims, info.strides});
  }
  ATTN_ASSIGN(auto binding, executable.bind(arguments));

  ATTN_ASSIGN(const auto stream, cuda::Stream::create(executable.device()));
  ATTN_RETURN_IF_ERROR(binding.execute(stream.handle()));
  ATTN_RETURN_IF_ERROR(stream.synchronize());

  for (const plan::TensorInfo& info : executable.program().tensors) {
    if (info.is_output()) ATTN_RETURN_IF_ERROR(print_start(info, memory[info.name]));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: embed PLAN\n");
    return 2;
  }
  const Status status = run(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().to_text().c_str());
  return exit_code(status.error().code);
}
