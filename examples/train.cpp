// Training steps with the two plans of a training pair, which share tensors by name.
//
//   attnc compile specs/t5_bias.attn --target native --direction both -o t5_bias.attnplan
//   train t5_bias.attnplan
//
// The target is o = 1 everywhere: the loss is half the squared distance, and `do`, the gradient of
// the loss with respect to o, is the distance. q, k, v and learned tensors follow their gradients
// in steps of fixed length, and the loss of each step is printed. Works with every pair without
// params. For brevity the optimizer runs on the host; an application's would run on the device.
#include <cmath>

#include "common.h"

namespace {

using examples::Tensor;
using Tensors = std::map<std::string, Tensor>;

constexpr int kSteps = 20;
constexpr double kLength = 0.05;  // root mean square of a step

// Binds tensors by name, and reuses those of the other plan: the backward reads the o and lse that
// the forward writes.
attn::Result<attn::Binding> bind_all(const attn::Runtime& runtime,
                                     const attn::Executable& executable, Tensors& tensors) {
  attn::Arguments arguments;
  for (const attn::TensorInfo& info : executable.tensors()) {
    if (tensors.count(info.name) == 0) {
      ATTN_TRY_ASSIGN(auto made, examples::make_tensor(runtime, info));
      tensors.emplace(info.name, std::move(made));
    }
    arguments.tensor(info.name, examples::view_of(tensors.at(info.name)));
  }
  return executable.bind(arguments);
}

// Returns the loss per element of o, and writes its gradient to do.
attn::Result<double> make_loss(Tensors& tensors) {
  ATTN_TRY_ASSIGN(auto values, examples::download(tensors.at("o")));
  double loss = 0;
  for (float& value : values) {
    value -= 1;
    loss += static_cast<double>(value) * static_cast<double>(value) / 2;
  }
  ATTN_TRY(examples::upload(tensors.at("do"), values));
  return loss / static_cast<double>(values.size());
}

// Unrounded values of what is learned: a step may be smaller than the precision of the tensor's
// dtype.
using Learned = std::map<std::string, std::vector<float>>;

attn::Status descend(const Tensor& gradient, Tensor& tensor, std::vector<float>& learned) {
  ATTN_TRY_ASSIGN(const auto slope, examples::download(gradient));
  double squares = 0;
  for (const float value : slope)
    squares += static_cast<double>(value) * static_cast<double>(value);
  if (squares == 0) return {};
  const double rate = kLength / std::sqrt(squares / static_cast<double>(slope.size()));
  for (std::size_t i = 0; i < slope.size(); ++i) learned[i] -= static_cast<float>(rate) * slope[i];
  return examples::upload(tensor, learned);
}

// The tensor that a gradient belongs to: q for dq, table for d_table.
std::string differentiated(const std::string& gradient) {
  return gradient.substr(gradient.rfind("d_", 0) == 0 ? 2 : 1);
}
const Tensor& gradient_of(const std::string& name, const Tensors& tensors) {
  const auto learned = tensors.find("d_" + name);
  return learned != tensors.end() ? learned->second : tensors.at("d" + name);
}

attn::Result<Learned> values_to_learn(const attn::Executable& backward, const Tensors& tensors) {
  Learned learned;
  for (const attn::TensorInfo& info : backward.tensors()) {
    if (info.role != attn::Role::gradient) continue;
    const std::string name = differentiated(info.name);
    ATTN_TRY_ASSIGN(learned[name], examples::download(tensors.at(name)));
  }
  return learned;
}

attn::Status run(const std::string& path) {
  ATTN_TRY_ASSIGN(const auto runtime, attn::Runtime::open());
  ATTN_TRY_ASSIGN(const auto forward, attn::Executable::load_file(runtime, path));
  ATTN_TRY_ASSIGN(const auto backward,
                  attn::Executable::load_file(runtime, path, attn::Direction::backward));

  Tensors tensors;
  ATTN_TRY_ASSIGN(auto making, bind_all(runtime, forward, tensors));
  ATTN_TRY_ASSIGN(auto differentiating, bind_all(runtime, backward, tensors));
  ATTN_TRY_ASSIGN(auto learned, values_to_learn(backward, tensors));
  ATTN_TRY_ASSIGN(const auto stream, attn::Stream::create(runtime));

  for (int step = 0; step < kSteps; ++step) {
    ATTN_TRY(making.execute(stream.handle()));
    ATTN_TRY(stream.synchronize());
    ATTN_TRY_ASSIGN(const double loss, make_loss(tensors));
    std::printf("step %d: loss %.6f\n", step, loss);
    ATTN_TRY(differentiating.execute(stream.handle()));
    ATTN_TRY(stream.synchronize());
    for (auto& [name, values] : learned) {
      ATTN_TRY(descend(gradient_of(name, tensors), tensors.at(name), values));
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return examples::usage("train PLAN");
  return examples::end_with(run(argv[1]));
}
