// Captures an execute into a CUDA graph, launches it several times, then updates its addresses.
//
//   attnc compile specs/causal.attn --target native -o causal.attnplan
//   cuda_graph causal.attnplan
//
// Checks that a launch writes the same outputs as an execute. Works with every forward plan without
// params.
#include "common.h"

namespace {

using examples::Tensor;
using Tensors = std::vector<Tensor>;  // in the order of executable.tensors()

constexpr int kLaunches = 10;

attn::Result<Tensors> make_tensors(const attn::Runtime& runtime, const attn::Executable& executable,
                                   unsigned seed) {
  Tensors tensors;
  for (const attn::TensorInfo& info : executable.tensors()) {
    ATTN_TRY_ASSIGN(auto tensor, examples::make_tensor(runtime, info, seed));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

attn::Result<attn::Binding> bind_all(const attn::Executable& executable, const Tensors& tensors) {
  attn::Arguments arguments;
  for (const Tensor& tensor : tensors) arguments.tensor(tensor.info.name, view_of(tensor));
  return executable.bind(arguments);
}

using Outputs = std::vector<examples::Bytes>;

attn::Result<Outputs> outputs_of(const Tensors& tensors) {
  Outputs outputs;
  for (const Tensor& tensor : tensors) {
    if (!tensor.info.is_output) continue;
    ATTN_TRY_ASSIGN(auto bytes, examples::download_bytes(tensor));
    outputs.push_back(std::move(bytes));
  }
  return outputs;
}

attn::Status clear_outputs(Tensors& tensors) {
  for (Tensor& tensor : tensors) {
    if (!tensor.info.is_output) continue;
    const std::vector<float> zeros(examples::element_count(tensor.info), 0.0f);
    ATTN_TRY(examples::upload(tensor, zeros));
  }
  return {};
}

// Returns the outputs of an execute, and then sets them to 0.
attn::Result<Outputs> execute(const attn::Executable& executable, Tensors& tensors,
                              const attn::Stream& stream) {
  ATTN_TRY_ASSIGN(auto binding, bind_all(executable, tensors));
  ATTN_TRY(binding.execute(stream.handle()));
  ATTN_TRY(stream.synchronize());
  ATTN_TRY_ASSIGN(auto outputs, outputs_of(tensors));
  ATTN_TRY(clear_outputs(tensors));
  return outputs;
}

attn::Status launch(attn::Graph& graph, const Tensors& tensors, const Outputs& wanted,
                    const char* what, const attn::Stream& stream) {
  for (int i = 0; i < kLaunches; ++i) ATTN_TRY(graph.launch(stream.handle()));
  ATTN_TRY(stream.synchronize());
  ATTN_TRY_ASSIGN(const auto written, outputs_of(tensors));
  if (written != wanted) {
    return attn::Error{attn::Code::mismatch, "graph and execute wrote different outputs", {}, {}};
  }
  std::printf("%d launches %s: same outputs as an execute\n", kLaunches, what);
  return {};
}

attn::Status run(const std::string& path) {
  ATTN_TRY_ASSIGN(const auto runtime, attn::Runtime::open());
  ATTN_TRY_ASSIGN(const auto executable, attn::Executable::load_file(runtime, path));
  ATTN_TRY_ASSIGN(const auto stream, attn::Stream::create(runtime));
  ATTN_TRY_ASSIGN(auto first, make_tensors(runtime, executable, 1));
  ATTN_TRY_ASSIGN(auto second, make_tensors(runtime, executable, 2));
  ATTN_TRY_ASSIGN(const auto wanted_first, execute(executable, first, stream));
  ATTN_TRY_ASSIGN(const auto wanted_second, execute(executable, second, stream));

  ATTN_TRY_ASSIGN(auto binding, bind_all(executable, first));
  ATTN_TRY_ASSIGN(auto graph, attn::Graph::capture(std::move(binding)));
  ATTN_TRY(launch(graph, first, wanted_first, "as captured", stream));

  std::vector<void*> addresses;
  addresses.reserve(second.size());
  for (const Tensor& tensor : second) addresses.push_back(tensor.memory.data());
  ATTN_TRY(graph.set_addresses(addresses));
  return launch(graph, second, wanted_second, "with other addresses", stream);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return examples::usage("cuda_graph PLAN");
  return examples::end_with(run(argv[1]));
}
