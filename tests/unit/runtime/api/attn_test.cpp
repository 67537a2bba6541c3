#include <attn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/runtime/api/c99.h"

namespace {

using ::testing::HasSubstr;

struct EndError {
  void operator()(attn_error* error) const { attn_error_destroy(error); }
};

class Attn : public ::testing::Test {
 protected:
  attn_error* error() { return error_.get(); }
  std::string message() { return attn_error_message(error()); }

 private:
  std::unique_ptr<attn_error, EndError> error_{attn_error_create()};
};

TEST_F(Attn, SpeaksC) { EXPECT_TRUE(c99_versions_agree()); }

TEST_F(Attn, NullIsAnErrorAndNoCrash) {
  attn_runtime_info runtime_info = {};
  attn_executable_info executable_info = {};
  attn_tensor_info tensor_info = {};
  attn_param_info param_info = {};
  attn_cache_counters counters = {};
  attn_tensor tensor = {};
  attn_runtime* runtime = nullptr;
  attn_executable* executable = nullptr;
  attn_plan* plan = nullptr;
  attn_plan_info plan_info = {};
  attn_arguments* arguments = nullptr;
  attn_binding* binding = nullptr;
  attn_graph* graph = nullptr;
  attn_memory* memory = nullptr;
  attn_stream* stream = nullptr;
  float value = 0;
  void* address = nullptr;
  const std::vector<attn_status> all = {
      attn_runtime_open(nullptr, nullptr, error()),
      attn_runtime_describe(nullptr, &runtime_info, error()),
      attn_runtime_cache_counters(nullptr, 0, &counters, error()),
      attn_runtime_cache_clear(nullptr, error()),
      attn_executable_load_file(nullptr, "x", nullptr, &executable, error()),
      attn_executable_load_memory(nullptr, "x", 1, nullptr, &executable, error()),
      attn_executable_describe(nullptr, &executable_info, error()),
      attn_executable_tensor(nullptr, 0, &tensor_info, error()),
      attn_executable_param(nullptr, 0, &param_info, error()),
      attn_arguments_create(nullptr, error()),
      attn_arguments_tensor(nullptr, &tensor, error()),
      attn_arguments_dlpack(nullptr, "q", &tensor, error()),
      attn_arguments_param(nullptr, "c", ATTN_DTYPE_F32, 1, error()),
      attn_arguments_address(nullptr, "q", nullptr, error()),
      attn_plan_open(nullptr, nullptr, &plan, error()),
      attn_plan_open_memory(nullptr, 0, nullptr, &plan, error()),
      attn_plan_describe(nullptr, 0, &plan_info, error()),
      attn_plan_tensor(nullptr, 0, 0, &tensor_info, error()),
      attn_plan_param(nullptr, 0, 0, &param_info, error()),
      attn_executable_load_plan(nullptr, nullptr, 0, &executable, error()),
      attn_binding_create(nullptr, nullptr, nullptr, &binding, error()),
      attn_binding_set_param(nullptr, "c", 1, error()),
      attn_binding_set_addresses(nullptr, &address, 1, ATTN_CHECK_ADDRESSES, error()),
      attn_binding_set_workspace(nullptr, nullptr, error()),
      attn_binding_execute(nullptr, nullptr, error()),
      attn_binding_cuda_graph(nullptr, &address, error()),
      attn_graph_capture(nullptr, &graph, error()),
      attn_graph_from_binding(nullptr, &graph, error()),
      attn_graph_from_binding(&binding, &graph, error()),
      attn_graph_set_param(nullptr, "c", 1, error()),
      attn_graph_set_addresses(nullptr, &address, 1, ATTN_CHECK_ADDRESSES, error()),
      attn_graph_launch(nullptr, nullptr, error()),
      attn_memory_allocate(nullptr, 1, &memory, error()),
      attn_memory_upload(nullptr, 0, &value, 1, error()),
      attn_memory_download(nullptr, 0, &value, 1, error()),
      attn_stream_create(nullptr, &stream, error()),
      attn_stream_synchronize(nullptr, error()),
      attn_elements_from_f32(ATTN_DTYPE_F32, nullptr, 1, &value, error()),
      attn_elements_to_f32(ATTN_DTYPE_F32, &value, 1, nullptr, error()),
  };
  EXPECT_THAT(all, ::testing::Each(ATTN_STATUS_INVALID_ARGUMENT));
  EXPECT_THAT(message(), HasSubstr("must not be NULL"));
  EXPECT_EQ(attn_runtime_cache_clear(nullptr, nullptr), ATTN_STATUS_INVALID_ARGUMENT);

  attn_error_destroy(nullptr);
  attn_runtime_retain(runtime);
  attn_runtime_release(runtime);
  attn_executable_retain(executable);
  attn_executable_release(executable);
  attn_plan_close(plan);
  EXPECT_EQ(attn_plan_count(plan), 0u);
  attn_arguments_destroy(arguments);
  attn_binding_destroy(binding);
  attn_graph_destroy(graph);
  attn_memory_free(memory);
  attn_stream_destroy(stream);
  EXPECT_EQ(attn_memory_data(memory), nullptr);
  EXPECT_EQ(attn_stream_handle(stream), nullptr);
  EXPECT_EQ(attn_error_status(nullptr), ATTN_STATUS_OK);
  EXPECT_EQ(attn_error_note_count(nullptr), 0u);
  EXPECT_STREQ(attn_error_text(nullptr), "");
}

TEST_F(Attn, ArgumentsNameWhatIsWrong) {
  attn_arguments* arguments = nullptr;
  ASSERT_EQ(attn_arguments_create(&arguments, error()), ATTN_STATUS_OK);
  const int64_t dims[] = {2, 3};
  attn_tensor tensor = {};
  tensor.size = sizeof tensor;
  EXPECT_EQ(attn_arguments_tensor(arguments, &tensor, error()), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_THAT(message(), HasSubstr("the tensor's name"));
  tensor.name = "bias";
  tensor.rank = 2;
  EXPECT_EQ(attn_arguments_tensor(arguments, &tensor, error()), ATTN_STATUS_BINDING);
  EXPECT_THAT(message(), HasSubstr("'bias'"));
  tensor.dims = dims;
  EXPECT_EQ(attn_arguments_tensor(arguments, &tensor, error()), ATTN_STATUS_BINDING);
  EXPECT_THAT(message(), HasSubstr("the dtype of 'bias' is 0, which is not an attn_dtype"));
  tensor.dtype = ATTN_DTYPE_BF16;
  EXPECT_EQ(attn_arguments_tensor(arguments, &tensor, error()), ATTN_STATUS_OK);
  tensor.rank = -1;
  EXPECT_EQ(attn_arguments_tensor(arguments, &tensor, error()), ATTN_STATUS_BINDING);
  tensor.size = 0;
  EXPECT_EQ(attn_arguments_tensor(arguments, &tensor, error()), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(attn_arguments_param(arguments, "c", 77, 1, error()), ATTN_STATUS_BINDING);
  EXPECT_EQ(attn_arguments_param(arguments, "c", ATTN_DTYPE_I32, 1, error()), ATTN_STATUS_OK);
  attn_arguments_destroy(arguments);
}

// The kind of failure is available without parsing text.
TEST_F(Attn, AMachineWithoutADriverSaysSo) {
  attn_runtime* runtime = nullptr;
  const attn_status status = attn_runtime_open(nullptr, &runtime, error());
  if (attn_error_cuda_failure(error()) != ATTN_CUDA_NO_DRIVER) {
    attn_runtime_release(runtime);
    GTEST_SKIP() << "SKIPPED: this machine has a CUDA driver";
  }
  EXPECT_EQ(status, ATTN_STATUS_CUDA);
}

TEST_F(Attn, ElementsAreConvertedBothWays) {
  const std::vector<float> values = {0, 1, -2.5f, 100};
  for (const attn_dtype dtype : {ATTN_DTYPE_F16, ATTN_DTYPE_BF16, ATTN_DTYPE_F32, ATTN_DTYPE_F64}) {
    std::vector<char> bytes(values.size() * attn_dtype_bytes(dtype));
    std::vector<float> back(values.size());
    ASSERT_EQ(attn_elements_from_f32(dtype, values.data(), values.size(), bytes.data(), error()),
              ATTN_STATUS_OK);
    ASSERT_EQ(attn_elements_to_f32(dtype, bytes.data(), back.size(), back.data(), error()),
              ATTN_STATUS_OK);
    EXPECT_EQ(back, values) << attn_dtype_name(dtype);
  }
  int32_t whole[4] = {};
  EXPECT_EQ(attn_elements_from_f32(ATTN_DTYPE_I32, values.data(), 2, whole, error()),
            ATTN_STATUS_OK);
  EXPECT_EQ(whole[1], 1);
  EXPECT_EQ(attn_elements_from_f32(ATTN_DTYPE_I32, values.data(), 4, whole, error()),
            ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "value 2 is -2.5, which i32 cannot represent");
  EXPECT_EQ(attn_elements_from_f32(0, values.data(), 1, whole, error()),
            ATTN_STATUS_INVALID_ARGUMENT);
}

}  // namespace
