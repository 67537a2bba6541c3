// The smallest application: load a plan file, bind device memory by name, execute, read back.
//
//   attnc compile specs/causal.attn --target native -o causal.attnplan
//   embed causal.attnplan
//
// Works with every plan without params: inputs are random. Prints the start of each output.
#include "common.h"

namespace {

attn::Status print_start(const examples::Tensor& tensor) {
  ATTN_TRY_ASSIGN(const auto values, examples::download(tensor));
  std::printf("%s:", tensor.info.name.c_str());
  for (std::size_t i = 0; i < values.size() && i < 4; ++i) {
    std::printf(" %g", static_cast<double>(values[i]));
  }
  std::printf(" ...\n");
  return {};
}

attn::Status run(const std::string& path) {
  ATTN_TRY_ASSIGN(const auto runtime, attn::Runtime::open());
  ATTN_TRY_ASSIGN(const auto executable, attn::Executable::load_file(runtime, path));

  std::vector<examples::Tensor> tensors;
  attn::Arguments arguments;
  for (const attn::TensorInfo& info : executable.tensors()) {
    ATTN_TRY_ASSIGN(auto tensor, examples::make_tensor(runtime, info));
    arguments.tensor(info.name, examples::view_of(tensor));
    tensors.push_back(std::move(tensor));
  }
  ATTN_TRY_ASSIGN(auto binding, executable.bind(arguments));

  ATTN_TRY_ASSIGN(const auto stream, attn::Stream::create(runtime));
  ATTN_TRY(binding.execute(stream.handle()));
  ATTN_TRY(stream.synchronize());

  for (const examples::Tensor& tensor : tensors) {
    if (tensor.info.is_output) ATTN_TRY(print_start(tensor));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return examples::usage("embed PLAN");
  return examples::end_with(run(argv[1]));
}
