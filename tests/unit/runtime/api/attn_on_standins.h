// Calls of attn.h on the stand-ins for cuDNN and the driver, for plans of plan_file.h.
#pragma once

#include <attn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/standin/standins.h"
#include "tests/unit/runtime/api/plan_file.h"

namespace attn::standin {

class AttnOnStandins : public StandinTest {
 protected:
  static constexpr std::array<int64_t, 4> kDims = {1, 2, 4, 8};
  static constexpr int64_t kTableDims[] = {16};
  static constexpr size_t kBytes = 128, kTableBytes = 64;
  static constexpr double kParam = 1.5;

  void SetUp() override {
    StandinTest::SetUp();
    error_ = attn_error_create();
    folder_ = folder();
  }
  void TearDown() override {
    for (attn_memory* memory : memory_) attn_memory_free(memory);
    attn_error_destroy(error_);
    StandinTest::TearDown();
  }

  void expect_ok(attn_status status) {
    EXPECT_EQ(status, ATTN_STATUS_OK) << attn_error_text(error_);
  }
  std::string message() const { return attn_error_message(error_); }

  attn_runtime* open(attn_runtime_options options = {}) {
    options.size = sizeof options;
    options.cudnn_folder = folder_.c_str();
    attn_runtime* runtime = nullptr;
    expect_ok(attn_runtime_open(&options, &runtime, error_));
    return runtime;
  }
  attn_executable* load(attn_runtime* runtime, const PlanFile& file = {}) {
    const std::string bytes = contents_of(file);
    attn_executable* executable = nullptr;
    expect_ok(attn_executable_load_memory(runtime, bytes.data(), bytes.size(), nullptr, &executable,
                                          error_));
    return executable;
  }
  attn_status load_status(attn_runtime* runtime, const std::string& bytes,
                          attn_direction direction = ATTN_DIRECTION_FORWARD) {
    attn_load_options options = {};
    options.size = sizeof options;
    options.direction = direction;
    attn_executable* executable = nullptr;
    return attn_executable_load_memory(runtime, bytes.data(), bytes.size(), &options, &executable,
                                       error_);
  }

  // Device memory with these bytes, freed at the end of the test.
  void* allocate(attn_runtime* runtime, const std::string& bytes) {
    attn_memory* memory = nullptr;
    expect_ok(attn_memory_allocate(runtime, bytes.size(), &memory, error_));
    memory_.push_back(memory);
    expect_ok(attn_memory_upload(memory, 0, bytes.data(), bytes.size(), error_));
    return attn_memory_data(memory);
  }
  std::string read(void* address, size_t bytes) {
    std::string read(bytes, '\0');
    for (attn_memory* memory : memory_) {
      if (attn_memory_data(memory) != address) continue;
      expect_ok(attn_memory_download(memory, 0, read.data(), bytes, error_));
    }
    return read;
  }

  void add(attn_arguments* arguments, const char* name, void* data, attn_dtype dtype,
           const int64_t* dims, int32_t rank) {
    attn_tensor tensor = {};
    tensor.size = sizeof tensor;
    tensor.name = name;
    tensor.data = data;
    tensor.dtype = dtype;
    tensor.rank = rank;
    tensor.dims = dims;
    expect_ok(attn_arguments_tensor(arguments, &tensor, error_));
  }
  // In the order of the plan.
  std::vector<void*> make_tensors(attn_runtime* runtime, char fill) {
    return {allocate(runtime, std::string(kBytes, fill)), allocate(runtime, std::string(kBytes, 0)),
            allocate(runtime, std::string(kTableBytes, fill))};
  }
  attn_arguments* arguments_of(const std::vector<void*>& tensors) {
    attn_arguments* arguments = nullptr;
    expect_ok(attn_arguments_create(&arguments, error_));
    add(arguments, "q", tensors[0], ATTN_DTYPE_BF16, kDims.data(), 4);
    add(arguments, "o", tensors[1], ATTN_DTYPE_BF16, kDims.data(), 4);
    add(arguments, "table", tensors[2], ATTN_DTYPE_F32, kTableDims, 1);
    expect_ok(attn_arguments_param(arguments, "p0", ATTN_DTYPE_F32, kParam, error_));
    return arguments;
  }
  attn_binding* bind(attn_executable* executable, const std::vector<void*>& tensors,
                     const attn_bind_options* options = nullptr) {
    attn_arguments* arguments = arguments_of(tensors);
    attn_binding* binding = nullptr;
    expect_ok(attn_binding_create(executable, arguments, options, &binding, error_));
    attn_arguments_destroy(arguments);
    return binding;
  }
  void expect_right(void* o, char fill, double param = kParam, const PlanFile& file = {}) {
    const std::string wanted = expected_o(
        file, std::string(kBytes, fill), std::string(kTableBytes, fill), static_cast<float>(param));
    EXPECT_EQ(read(o, kBytes), wanted);
  }

  attn_error* error_ = nullptr;
  std::string folder_;
  std::vector<attn_memory*> memory_;
};

}  // namespace attn::standin
