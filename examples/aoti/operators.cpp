#include "operators.h"

#include <ATen/ATen.h>
#define USE_CUDA 1  // for aoti_torch_get_current_cuda_stream
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/library.h>

#include <attn.hpp>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace attn {
namespace {

std::string text_of(const Error& error) {
  std::string text = error.message;
  for (const std::string& note : error.notes) text += "\n  note: " + note;
  return text;
}

template <typename T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(text_of(result.error()));
  return std::move(*result);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::bf16: return at::kBFloat16;
    case DType::f16: return at::kHalf;
    case DType::f64: return at::kDouble;
    case DType::i8: return at::kChar;
    case DType::u8: return at::kByte;
    case DType::i32: return at::kInt;
    case DType::i64: return at::kLong;
    case DType::boolean: return at::kBool;
    case DType::e4m3: return at::kFloat8_e4m3fn;
    case DType::e5m2: return at::kFloat8_e5m2;
    case DType::e8m0: return at::kFloat8_e8m0fnu;
    default: return at::kFloat;
  }
}

// One plan. Each stream has a binding, which one thread at a time uses.
class Plan {
 public:
  Plan(Executable executable, std::vector<std::string> outputs, std::vector<std::string> params,
       int device)
      : executable_(std::move(executable)),
        outputs_(std::move(outputs)),
        params_(std::move(params)),
        device_(at::kCUDA, static_cast<at::DeviceIndex>(device)) {}

  bool serves(const std::vector<std::string>& names, const at::TensorList& tensors) const {
    for (const TensorInfo& info : executable_.tensors()) {
      if (info.is_output) continue;
      const at::Tensor* const tensor = find(info.name, names, tensors);
      if (tensor == nullptr || tensor->scalar_type() != scalar_type(info.dtype) ||
          tensor->sizes() != at::IntArrayRef(info.dims))
        return false;
    }
    return true;
  }

  // The outputs in the order of the spec's clause.
  std::vector<at::Tensor> run(const std::vector<std::string>& names, const at::TensorList& tensors,
                              const std::vector<double>& params) {
    std::vector<at::Tensor> used;  // in the executable's order, until the kernels are enqueued
    std::map<std::string, at::Tensor> made;
    for (const TensorInfo& info : executable_.tensors()) {
      if (info.is_output) {
        used.push_back(made[info.name] = allocate(info));
      } else {
        used.push_back(laid_out(*find(info.name, names, tensors), info));
      }
    }
    at::Tensor workspace;
    if (executable_.workspace_bytes() > 0)
      workspace =
          at::empty({executable_.workspace_bytes()}, at::TensorOptions(at::kByte).device(device_));
    execute(used, workspace, params);
    std::vector<at::Tensor> outputs;
    for (const std::string& name : outputs_) outputs.push_back(made.at(name));
    return outputs;
  }

 private:
  static const at::Tensor* find(const std::string& name, const std::vector<std::string>& names,
                                const at::TensorList& tensors) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i] == name) return &tensors[i];
    return nullptr;
  }

  at::Tensor allocate(const TensorInfo& info) const {
    return at::empty_strided(info.dims, info.strides,
                             at::TensorOptions(scalar_type(info.dtype)).device(device_));
  }

  // The tensor, or a copy with the strides and the alignment that the plan needs.
  at::Tensor laid_out(const at::Tensor& tensor, const TensorInfo& info) const {
    bool same = reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) %
                    static_cast<std::uintptr_t>(info.alignment) ==
                0;
    for (std::size_t dim = 0; dim < info.dims.size(); ++dim)
      same = same && (info.dims[dim] <= 1 ||
                      tensor.stride(static_cast<std::int64_t>(dim)) == info.strides[dim]);
    return same && tensor.device() == device_ ? tensor : allocate(info).copy_(tensor);
  }

  void execute(const std::vector<at::Tensor>& tensors, const at::Tensor& workspace,
               const std::vector<double>& params) {
    void* stream = nullptr;
    TORCH_CHECK(aoti_torch_get_current_cuda_stream(device_.index(), &stream) == 0,
                "attn::forward: the device has no current stream");
    void* const memory = workspace.defined() ? workspace.data_ptr() : nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    auto bound = bindings_.find(stream);
    if (bound == bindings_.end()) {
      Arguments arguments;
      for (std::size_t i = 0; i < tensors.size(); ++i)
        arguments.address(executable_.tensors()[i].name, tensors[i].data_ptr());
      for (std::size_t i = 0; i < params_.size(); ++i) arguments.param(params_[i], params[i]);
      bound = bindings_
                  .emplace(stream, value_of(executable_.bind(arguments, memory != nullptr
                                                                            ? Workspace::of(memory)
                                                                            : Workspace::owned())))
                  .first;
    } else {
      std::vector<void*> addresses;
      for (const at::Tensor& tensor : tensors) addresses.push_back(tensor.data_ptr());
      check(bound->second.set_addresses(addresses));
      if (memory != nullptr) check(bound->second.set_workspace(memory));
      for (std::size_t i = 0; i < params_.size(); ++i)
        check(bound->second.set_param(params_[i], params[i]));
    }
    check(bound->second.execute(stream));
  }

  static void check(const Status& status) {
    TORCH_CHECK(status.ok(), "attn::forward: ", status.ok() ? "" : text_of(status.error()));
  }

  Executable executable_;
  std::vector<std::string> outputs_, params_;
  at::Device device_;
  std::mutex mutex_;
  std::map<void*, Binding> bindings_;
};

// Plans by the operator's name of the attention, one for each set of shapes.
std::map<std::string, std::vector<std::unique_ptr<Plan>>>& plans() {
  static std::map<std::string, std::vector<std::unique_ptr<Plan>>> loaded;
  return loaded;
}

std::vector<at::Tensor> forward(std::string attention, std::vector<std::string> names,
                                at::TensorList tensors, std::vector<double> params, bool training) {
  TORCH_CHECK(!training, "attn::forward has no gradients in C++: export under torch.no_grad()");
  const auto found = plans().find(attention);
  TORCH_CHECK(found != plans().end(), "attn::forward: no plan of this attention was loaded; ",
              "attn.torch.save_plans writes it, attn::load_plans loads it: ", attention);
  for (const auto& plan : found->second)
    if (plan->serves(names, tensors)) return plan->run(names, tensors, params);
  TORCH_CHECK(false, "attn::forward: no plan for q ", tensors[0].sizes(), " was loaded");
}

}  // namespace

void load_plans(const std::string& folder, int device) {
  const std::string index = folder + "/plans.tsv";
  std::ifstream lines(index);
  if (!lines) throw std::runtime_error(index + " cannot be read");
  RuntimeOptions options;
  options.device = device;
  const Runtime runtime = value_of(Runtime::open(options));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = split(line, '\t');
    if (fields.size() != 4) throw std::runtime_error(index + " is damaged: " + line);
    plans()[fields[3]].push_back(std::make_unique<Plan>(
        value_of(Executable::load_file(runtime, folder + "/" + fields[0], Direction::forward)),
        split(fields[1], ','), split(fields[2], ','), device));
  }
}

}  // namespace attn

TORCH_LIBRARY(attn, library) {
  library.def(
      "forward(str attention, str[] names, Tensor[] tensors, float[] params, bool training)"
      " -> Tensor[]");
}

TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("forward", attn::forward);
}
