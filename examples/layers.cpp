// The layers of a model: one plan, one binding that switches between layers, one workspace.
//
//   attnc compile specs/causal.attn --target native -o causal.attnplan
//   layers causal.attnplan 32
//
// The binding caches the state for each layer's addresses, so from the second pass on switching
// layers costs nothing. Checks that a second pass writes the same outputs as the first. Works with
// every forward plan without params.
#include <cstdlib>

#include "common.h"

namespace {

using examples::Tensor;

struct Layer {
  std::vector<Tensor> tensors;   // in the order of executable.tensors()
  std::vector<void*> addresses;  // of the tensors
};

attn::Result<Layer> make_layer(const attn::Runtime& runtime, const attn::Executable& executable,
                               unsigned seed) {
  Layer layer;
  for (const attn::TensorInfo& info : executable.tensors()) {
    ATTN_TRY_ASSIGN(auto tensor, examples::make_tensor(runtime, info, seed));
    layer.addresses.push_back(tensor.memory.data());
    layer.tensors.push_back(std::move(tensor));
  }
  return layer;
}

attn::Result<attn::Binding> bind_first(const attn::Executable& executable, const Layer& layer,
                                       void* workspace, std::size_t layers) {
  attn::Arguments arguments;
  for (const Tensor& tensor : layer.tensors) {
    arguments.address(tensor.info.name, tensor.memory.data());
  }
  return executable.bind(arguments, attn::Workspace::of(workspace), layers);
}

attn::Status pass(attn::Binding& binding, const std::vector<Layer>& layers,
                  const attn::Stream& stream) {
  for (const Layer& layer : layers) {
    ATTN_TRY(binding.set_addresses(layer.addresses));
    ATTN_TRY(binding.execute(stream.handle()));
  }
  return stream.synchronize();
}

attn::Result<std::vector<examples::Bytes>> outputs_of(const std::vector<Layer>& layers) {
  std::vector<examples::Bytes> outputs;
  for (const Layer& layer : layers) {
    for (const Tensor& tensor : layer.tensors) {
      if (!tensor.info.is_output) continue;
      ATTN_TRY_ASSIGN(auto bytes, examples::download_bytes(tensor));
      outputs.push_back(std::move(bytes));
    }
  }
  return outputs;
}

attn::Status run(const std::string& path, std::size_t count) {
  ATTN_TRY_ASSIGN(const auto runtime, attn::Runtime::open());
  ATTN_TRY_ASSIGN(const auto executable, attn::Executable::load_file(runtime, path));
  ATTN_TRY_ASSIGN(const auto stream, attn::Stream::create(runtime));
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < count; ++i) {
    ATTN_TRY_ASSIGN(auto layer, make_layer(runtime, executable, static_cast<unsigned>(i)));
    layers.push_back(std::move(layer));
  }

  // The layers run one after another on one stream, so they can share one workspace.
  const auto bytes = static_cast<std::size_t>(executable.workspace_bytes());
  ATTN_TRY_ASSIGN(const auto workspace, attn::Memory::allocate(runtime, bytes));
  ATTN_TRY_ASSIGN(auto binding,
                  bind_first(executable, layers.front(), workspace.data(), layers.size()));
  ATTN_TRY(pass(binding, layers, stream));
  ATTN_TRY_ASSIGN(const auto first, outputs_of(layers));
  ATTN_TRY(pass(binding, layers, stream));
  ATTN_TRY_ASSIGN(const auto second, outputs_of(layers));
  if (first != second) {
    return attn::Error{attn::Code::mismatch, "two passes wrote different outputs", {}, {}};
  }
  std::printf("2 passes over %zu layers with a workspace of %zu bytes: the same outputs\n", count,
              bytes);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 3 ? std::atoi(argv[2]) : 32;
  if (argc < 2 || argc > 3 || count < 1) return examples::usage("layers PLAN [LAYERS]");
  return examples::end_with(run(argv[1], static_cast<std::size_t>(count)));
}
