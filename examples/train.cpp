// Training steps: the two plans of a pair, which share tensors by name.
//
//   attnc compile specs/t5_bias.attn --target h200 --direction both -o t5_bias.attnplan
//   train t5_bias.attnplan
//
// o is to become 1 everywhere: the loss is half the squared distance, and `do`, its derivative by
// o, that distance. q, k, v and learned tensors go down their gradients, by steps of one length,
// and the loss of each step is printed. It works for every pair without params. An application's
// optimizer works on the device; this one, to be short, on the host.
#include <cmath>
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

constexpr int kSteps = 20;
constexpr double kLength = 0.05;  // of a step: root mean square

struct Tensor {
  plan::TensorInfo info;
  std::vector<double> values;  // row-major, unrounded
  cuda::DeviceBuffer memory;
};
using Tensors = std::map<std::string, Tensor>;

Status upload(Tensor& tensor) {
  const plan::TensorInfo& info = tensor.info;
  ATTN_ASSIGN(const auto bytes, io::pack(tensor.values, info.dims, info.strides, info.dtype));
  return tensor.memory.upload(bytes);
}

Status download(Tensor& tensor) {
  const plan::TensorInfo& info = tensor.info;
  std::vector<std::byte> bytes(tensor.memory.size());
  ATTN_RETURN_IF_ERROR(tensor.memory.download(bytes));
  ATTN_ASSIGN(auto unpacked, io::unpack(bytes, info.dims, info.strides, info.dtype));
  tensor.values = std::move(unpacked.values);
  return {};
}

// Random, where it is of reals and nothing that a plan makes.
Result<Tensor> make_tensor(const cuda::Device& device, const plan::TensorInfo& info) {
  const std::int64_t count = io::element_count(info.dims);
  Tensor tensor{info, std::vector<double>(static_cast<std::size_t>(count)), {}};
  if (is_float(info.dtype) && !info.is_output()) {
    tensor.values = io::normal_values(io::seed_of(info.name), count);
  }
  ATTN_ASSIGN(const auto bytes, io::pack(tensor.values, info.dims, info.strides, info.dtype));
  ATTN_ASSIGN(tensor.memory, cuda::DeviceBuffer::allocate(device, bytes.size()));
  ATTN_RETURN_IF_ERROR(tensor.memory.upload(bytes));
  return tensor;
}

// What the other plan was bound to already is bound to this one too: the backward reads the o and
// lse that the forward writes.
Result<execute::Binding> bind_all(const execute::Executable& executable, Tensors& tensors) {
  execute::Arguments arguments;
  for (const plan::TensorInfo& info : executable.program().tensors) {
    if (!tensors.contains(info.name)) {
      ATTN_ASSIGN(tensors[info.name], make_tensor(executable.device(), info));
    }
    void* address = tensors[info.name].memory.data();
    arguments.tensor(info.name, {address, info.dtype, info.dims, info.strides});
  }
  return executable.bind(arguments);
}

// Of o, for each element; `derivative` becomes that by o.
double loss_of(const Tensor& o, Tensor& derivative) {
  double loss = 0;
  for (std::size_t i = 0; i < o.values.size(); ++i) {
    derivative.values[i] = o.values[i] - 1;
    loss += derivative.values[i] * derivative.values[i] / 2;
  }
  return loss / static_cast<double>(o.values.size());
}

// dq is of q, d_table of table.
std::string differentiated(const std::string& gradient) {
  return gradient.substr(gradient.starts_with("d_") ? 2 : 1);
}

Status descend(Tensor& gradient, Tensor& tensor) {
  ATTN_RETURN_IF_ERROR(download(gradient));
  double squares = 0;
  for (const double value : gradient.values) squares += value * value;
  if (squares == 0) return {};
  const double rate = kLength / std::sqrt(squares / static_cast<double>(gradient.values.size()));
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] -= rate * gradient.values[i];
  }
  return upload(tensor);
}

Status run(const std::string& path) {
  execute::LoadOptions options;
  ATTN_ASSIGN(auto forward, execute::Executable::load_file(path, options));
  options.direction = plan::Direction::backward;
  ATTN_ASSIGN(auto backward, execute::Executable::load_file(path, options));

  Tensors tensors;
  ATTN_ASSIGN(auto made, bind_all(forward, tensors));
  ATTN_ASSIGN(auto differentiating, bind_all(backward, tensors));
  ATTN_ASSIGN(const auto stream, cuda::Stream::create(forward.device()));

  for (int step = 0; step < kSteps; ++step) {
    ATTN_RETURN_IF_ERROR(made.execute(stream.handle()));
    ATTN_RETURN_IF_ERROR(stream.synchronize());
    ATTN_RETURN_IF_ERROR(download(tensors["o"]));
    std::printf("step %d: loss %.6f\n", step, loss_of(tensors["o"], tensors["do"]));
    ATTN_RETURN_IF_ERROR(upload(tensors["do"]));
    ATTN_RETURN_IF_ERROR(differentiating.execute(stream.handle()));
    ATTN_RETURN_IF_ERROR(stream.synchronize());
    for (const plan::TensorInfo& info : backward.program().tensors) {
      if (info.role != plan::TensorRole::gradient) continue;
      ATTN_RETURN_IF_ERROR(descend(tensors[info.name], tensors[differentiated(info.name)]));
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: train PLAN\n");
    return 2;
  }
  const Status status = run(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().to_text().c_str());
  return exit_code(status.error().code);
}
