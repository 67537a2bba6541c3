// Runs what export.py wrote, without Python:  run FOLDER
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "operators.h"

static std::vector<at::Tensor> load_tensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  const auto tuple = torch::jit::pickle_load(bytes).toTuple();
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : tuple->elements()) tensors.push_back(value.toTensor());
  return tensors;
}

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  try {
    const std::string folder = arguments[1];
    attn::load_plans(folder + "/plans");
    torch::inductor::AOTIModelPackageLoader model(folder + "/model.pt2");
    const std::vector<at::Tensor> kept = load_tensors(folder + "/check.pt");
    const at::Tensor output = model.run({kept[0].to(at::kCUDA)})[0].cpu();
    const at::Tensor expected = kept[1].to(at::kFloat);
    const double difference =
        ((output.to(at::kFloat) - expected).norm() / expected.norm()).item<double>();
    std::printf("difference from Python: %.1e\n", difference);
    return difference < 1e-2 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
