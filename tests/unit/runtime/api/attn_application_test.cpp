// Tests what attn.h shares with its application, on the stand-ins: DLPack, callbacks, threads.
#include <attn.h>
#include <dlpack/dlpack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/runtime/api/attn_on_standins.h"
#include "tests/unit/runtime/api/plan_file.h"

namespace {

using attn::standin::AttnOnStandins;
using attn::standin::contents_of;
using ::testing::HasSubstr;

class DlpackOnStandins : public AttnOnStandins {
 protected:
  DLTensor dl_tensor(void* data, int device) {
    DLTensor tensor = {};
    tensor.data = data;
    tensor.device = {kDLCUDA, device};
    tensor.ndim = 4;
    tensor.dtype = {kDLBfloat, 16, 1};
    tensor.shape = shape_.data();
    return tensor;
  }
  attn_status bind_dlpack(attn_executable* executable, const std::vector<void*>& tensors,
                          int device, attn_binding** binding) {
    attn_arguments* arguments = nullptr;
    expect_ok(attn_arguments_create(&arguments, error_));
    const DLTensor q = dl_tensor(tensors[0], device), o = dl_tensor(tensors[1], device);
    expect_ok(attn_arguments_dlpack(arguments, "q", &q, error_));
    expect_ok(attn_arguments_dlpack(arguments, "o", &o, error_));
    add(arguments, "table", tensors[2], ATTN_DTYPE_F32, kTableDims, 1);
    expect_ok(attn_arguments_param(arguments, "p0", ATTN_DTYPE_F32, kParam, error_));
    const attn_status status = attn_binding_create(executable, arguments, nullptr, binding, error_);
    attn_arguments_destroy(arguments);
    return status;
  }

  std::array<int64_t, 4> shape_ = kDims;
};

TEST_F(DlpackOnStandins, TensorsAreBoundWhereTheySayTheyAre) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  const std::vector<void*> tensors = make_tensors(runtime, 'a');
  attn_binding* binding = nullptr;
  expect_ok(bind_dlpack(executable, tensors, 0, &binding));
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(tensors[1], 'a');
  attn_binding_destroy(binding);

  EXPECT_EQ(bind_dlpack(executable, tensors, 1, &binding), ATTN_STATUS_BINDING);
  EXPECT_EQ(message(), "tensor 'o' is on CUDA device 1, but the plan is loaded on device 0");
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

struct Seen {
  std::string bytes;
  int32_t answer = 0;
};
int32_t look(void* seen, const void* bytes, size_t count) {
  static_cast<Seen*>(seen)->bytes.assign(static_cast<const char*>(bytes), count);
  return static_cast<Seen*>(seen)->answer;
}

TEST_F(AttnOnStandins, APlanIsLoadedOnlyWhenItIsTrusted) {
  attn_runtime* runtime = open();
  const std::string plan = contents_of({}), foreign = "parsed by nobody: not a plan at all";
  Seen seen;
  attn_load_options options = {};
  options.size = sizeof options;
  options.verify = look;
  options.verify_user = &seen;
  attn_executable* executable = nullptr;
  const auto load_as = [&](const std::string& bytes) {
    return attn_executable_load_memory(runtime, bytes.data(), bytes.size(), &options, &executable,
                                       error_);
  };
  expect_ok(load_as(plan));
  EXPECT_EQ(seen.bytes, plan);
  attn_executable_release(executable);
  seen.answer = 3;
  EXPECT_EQ(load_as(foreign), ATTN_STATUS_PLAN_REFUSED) << "before anything is parsed";
  EXPECT_EQ(seen.bytes, foreign);
  EXPECT_EQ(message(), "the application refused the plan file: verify returned 3");
  EXPECT_EQ(attn_status_exit_code(ATTN_STATUS_PLAN_REFUSED), 6);

  options.verify = nullptr;
  const std::string hash(64, 'a');
  options.sha256 = hash.c_str();
  EXPECT_EQ(load_as(plan), ATTN_STATUS_PLAN_REFUSED);
  const std::string note = attn_error_note(error_, 0);
  ASSERT_THAT(note, HasSubstr("its SHA-256 is "));
  const std::string right = note.substr(note.size() - 64);
  options.sha256 = right.c_str();
  expect_ok(load_as(plan));
  attn_executable_release(executable);
  options.sha256 = "a hash";
  EXPECT_EQ(load_as(plan), ATTN_STATUS_INVALID_ARGUMENT);
  attn_runtime_release(runtime);
}

struct Ledger {
  attn_runtime* bank = nullptr;
  std::vector<attn_memory*> memory;
  std::vector<size_t> sizes;
  int ends = 0;
};
void* lend(void* user, size_t bytes, void*) {
  auto& ledger = *static_cast<Ledger*>(user);
  attn_memory* memory = nullptr;
  if (attn_memory_allocate(ledger.bank, bytes, &memory, nullptr) != ATTN_STATUS_OK) return nullptr;
  ledger.memory.push_back(memory);
  ledger.sizes.push_back(bytes);
  return attn_memory_data(memory);
}
void take_back(void* user, void* address, size_t bytes, void*) {
  auto& ledger = *static_cast<Ledger*>(user);
  for (size_t i = 0; i < ledger.memory.size(); ++i) {
    if (attn_memory_data(ledger.memory[i]) != address || ledger.sizes[i] != bytes) continue;
    attn_memory_free(ledger.memory[i]);
    ledger.memory.erase(ledger.memory.begin() + static_cast<std::ptrdiff_t>(i));
    ledger.sizes.erase(ledger.sizes.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  ADD_FAILURE() << "memory that was not lent";
}

TEST_F(AttnOnStandins, MemoryComesFromTheApplication) {
  Ledger ledger;
  ledger.bank = open();
  attn_runtime_options options = {};
  options.allocate_memory = lend;
  options.allocator_user = &ledger;
  options.allocator_release = [](void* user) { static_cast<Ledger*>(user)->ends += 1; };
  options.size = sizeof options;
  attn_runtime* runtime = nullptr;
  EXPECT_EQ(attn_runtime_open(&options, &runtime, error_), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "allocate_memory and free_memory must be set together");
  EXPECT_EQ(ledger.ends, 1);

  options.free_memory = take_back;
  runtime = open(options);
  attn_executable* executable = load(runtime);
  attn_executable_info info = {};
  info.size = sizeof info;
  expect_ok(attn_executable_describe(executable, &info, error_));
  const std::vector<void*> tensors = make_tensors(ledger.bank, 'a');
  attn_binding* binding = bind(executable, tensors);
  EXPECT_EQ(ledger.sizes, std::vector<size_t>{static_cast<size_t>(info.workspace_bytes)});
  attn_executable_release(executable);
  attn_runtime_release(runtime);
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(tensors[1], 'a');
  EXPECT_EQ(ledger.ends, 1);
  attn_binding_destroy(binding);
  EXPECT_EQ(ledger.ends, 2);
  EXPECT_TRUE(ledger.memory.empty());
  attn_runtime_release(ledger.bank);
}

struct Diary {
  std::atomic<int> messages = 0;
  std::atomic<int> ends = 0;
};

void note(void* diary, attn_log_level level, const char* message) {
  EXPECT_GE(level, ATTN_LOG_DEBUG);
  EXPECT_STRNE(message, "");
  static_cast<Diary*>(diary)->messages += 1;
}
void end(void* diary) { static_cast<Diary*>(diary)->ends += 1; }

TEST_F(AttnOnStandins, TheLogEndsWithTheLastThatCouldWriteIt) {
  Diary diary;
  attn_runtime_options options = {};
  options.log = note;
  options.log_user = &diary;
  options.log_release = end;
  attn_runtime* runtime = open(options);
  EXPECT_GT(diary.messages, 0);
  attn_executable* executable = load(runtime);
  attn_runtime_release(runtime);
  EXPECT_EQ(diary.ends, 0);
  attn_executable_release(executable);
  EXPECT_EQ(diary.ends, 1);

  options.device = 7;
  options.size = sizeof options;
  EXPECT_NE(attn_runtime_open(&options, &runtime, error_), ATTN_STATUS_OK);
  EXPECT_EQ(diary.ends, 2);
}

TEST_F(AttnOnStandins, ThreadsShareARuntimeAndAnExecutable) {
  constexpr int kThreads = 8, kRounds = 20;
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  std::vector<std::vector<void*>> tensors;
  std::vector<attn_binding*> bindings;
  for (int i = 0; i < kThreads; ++i) {
    tensors.push_back(make_tensors(runtime, static_cast<char>('a' + i)));
    bindings.push_back(bind(executable, tensors.back()));
  }
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (attn_binding* binding : bindings) {
    attn_executable_retain(executable);
    threads.emplace_back([&, binding] {
      attn_stream* stream = nullptr;
      failures += attn_stream_create(runtime, &stream, nullptr) != ATTN_STATUS_OK;
      for (int round = 0; round < kRounds; ++round) {
        failures +=
            attn_binding_execute(binding, attn_stream_handle(stream), nullptr) != ATTN_STATUS_OK;
      }
      failures += attn_stream_synchronize(stream, nullptr) != ATTN_STATUS_OK;
      attn_stream_destroy(stream);
      attn_executable_release(executable);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (size_t i = 0; i < kThreads; ++i) {
    expect_right(tensors[i][1], static_cast<char>('a' + i));
    attn_binding_destroy(bindings[i]);
  }
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

}  // namespace
