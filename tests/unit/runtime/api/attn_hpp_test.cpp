// Tests attn.hpp on the stand-ins. Includes no internal headers: see plan_file.h.
#include <dlpack/dlpack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attn.hpp>
#include <string>
#include <type_traits>

#include "tests/standin/standins.h"
#include "tests/unit/runtime/api/must.h"
#include "tests/unit/runtime/api/plan_file.h"

namespace {

using attn::standin::contents_of;
using attn::standin::expected_o;
using attn::standin::must;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

static_assert(std::is_same_v<attn::Status, attn::v2::Status>);
static_assert(std::is_copy_constructible_v<attn::Executable>);
static_assert(!std::is_copy_constructible_v<attn::Binding>);
static_assert(std::is_nothrow_move_constructible_v<attn::Binding>);

class AttnHpp : public attn::standin::StandinTest {
 protected:
  static attn::Runtime open(attn::RuntimeOptions options = {}) {
    options.cudnn_folder = attn::standin::folder();
    return must(attn::Runtime::open(options));
  }
  static attn::Executable load(const attn::Runtime& runtime) {
    return must(attn::Executable::load_memory(runtime, contents_of({})));
  }
};

struct Tensors {
  Tensors(const attn::Runtime& runtime, char fill) {
    for (attn::Memory* memory : {&q, &table}) {
      const std::string bytes(memory == &q ? kBytes : kTableBytes, fill);
      *memory = must(attn::Memory::allocate(runtime, bytes.size()));
      must(memory->upload(bytes.data(), bytes.size()));
    }
    o = must(attn::Memory::allocate(runtime, kBytes));
  }
  attn::Arguments arguments() const {
    attn::Arguments arguments;
    arguments.tensor("q", {q.data(), attn::DType::bf16, {1, 2, 4, 8}})
        .tensor("o", {o.data(), attn::DType::bf16, {1, 2, 4, 8}, {64, 32, 8, 1}})
        .tensor("table", {table.data(), attn::DType::f32, {16}})
        .param("p0", 2.0);
    return arguments;
  }
  std::vector<void*> addresses() const { return {q.data(), o.data(), table.data()}; }
  std::string read_o() const {
    std::string bytes(kBytes, '\0');
    must(o.download(bytes.data(), bytes.size()));
    return bytes;
  }
  static std::string expected(char fill, float param = 2) {
    return expected_o({}, std::string(kBytes, fill), std::string(kTableBytes, fill), param);
  }

  static constexpr std::size_t kBytes = 128, kTableBytes = 64;
  attn::Memory q, o, table;
};

TEST_F(AttnHpp, TheWholeWay) {
  const attn::Runtime runtime = open();
  EXPECT_EQ(must(runtime.describe()).sm, 90);
  const attn::Executable executable = load(runtime);
  EXPECT_EQ(executable.signature().size(), 32u);
  EXPECT_EQ(executable.direction(), attn::Direction::forward);
  ASSERT_EQ(executable.tensors().size(), 3u);
  EXPECT_EQ(executable.tensors()[1].name, "o");
  EXPECT_TRUE(executable.tensors()[1].is_output);
  EXPECT_THAT(executable.tensors()[1].dims, ElementsAre(1, 2, 4, 8));
  ASSERT_EQ(executable.params().size(), 1u);
  EXPECT_EQ(executable.params()[0].dtype, attn::DType::f32);

  const Tensors first(runtime, 'a'), second(runtime, 'b');
  const attn::Stream stream = must(attn::Stream::create(runtime));
  attn::Binding binding = must(executable.bind(first.arguments()));
  must(binding.execute(stream.handle()));
  must(stream.synchronize());
  EXPECT_EQ(first.read_o(), Tensors::expected('a'));
  must(binding.set_addresses(second.addresses()));
  must(binding.set_param("p0", 3));
  must(binding.execute(stream.handle()));
  EXPECT_EQ(second.read_o(), Tensors::expected('b', 3));

  attn::Graph graph = must(attn::Graph::capture(std::move(binding)));
  must(graph.set_addresses(first.addresses()));
  must(graph.set_param("p0", 4));
  must(graph.launch(stream.handle()));
  EXPECT_EQ(first.read_o(), Tensors::expected('a', 4));
}

template <typename Handle>
void expect_empty(const Handle& handle) {
  static_assert(std::is_nothrow_move_constructible_v<Handle>);
  EXPECT_FALSE(handle);
}

TEST_F(AttnHpp, AnEmptyHandleFailsAndDoesNotCrash) {
  attn::Runtime runtime;
  attn::Executable executable;
  attn::Binding binding;
  attn::Graph graph;
  attn::Picker picker;
  attn::PlanFile file;
  attn::Picked picked;
  attn::Memory memory;
  attn::Stream stream;
  EXPECT_FALSE(runtime || executable || binding || graph || picker || file || picked || memory ||
               stream);
  EXPECT_EQ(executable.name(), "");
  EXPECT_TRUE(executable.tensors().empty());
  EXPECT_EQ(file.size(), 0U);
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(stream.handle(), nullptr);
  EXPECT_EQ(picked.handle(), nullptr);
  const attn::Code invalid = attn::Code::invalid_argument;
  EXPECT_EQ(runtime.describe().error().code, invalid);
  EXPECT_EQ(executable.bind(attn::Arguments()).error().code, invalid);
  EXPECT_EQ(binding.execute(nullptr).error().code, invalid);
  EXPECT_EQ(binding.cuda_graph().error().code, invalid);
  EXPECT_EQ(graph.launch(nullptr).error().code, invalid);
  EXPECT_EQ(attn::Graph::capture(std::move(binding)).error().code, invalid);
  EXPECT_EQ(picker.pick({}).error().code, invalid);
  EXPECT_EQ(file.plan(0).error().code, invalid);
  EXPECT_EQ(picked.executable().error().code, invalid);
  EXPECT_EQ(memory.upload(&invalid, 1).error().code, invalid);
  EXPECT_EQ(stream.synchronize().error().code, invalid);
  EXPECT_EQ(attn::Executable::load_file(runtime, "x").error().message,
            "the runtime must not be NULL");
}

TEST_F(AttnHpp, WhatWasMovedFromIsEmpty) {
  attn::Runtime runtime = open();
  attn::Executable executable = load(runtime);
  const Tensors tensors(runtime, 'a');
  attn::Arguments arguments = tensors.arguments();
  attn::Binding binding = must(executable.bind(arguments));
  const attn::Runtime other_runtime = std::move(runtime);
  const attn::Executable other_executable = std::move(executable);
  attn::Binding other_binding = std::move(binding);
  const attn::Arguments other_arguments = std::move(arguments);
  expect_empty(runtime);
  expect_empty(executable);
  EXPECT_TRUE(executable.tensors().empty());
  expect_empty(binding);
  EXPECT_FALSE(arguments);
  EXPECT_EQ(binding.execute(nullptr).error().message, "the binding must not be NULL");
  arguments.param("p0", 1.0);
  ASSERT_TRUE(arguments.error());
  EXPECT_EQ(arguments.error()->code, attn::Code::invalid_argument);
  EXPECT_TRUE(other_runtime && other_executable && other_binding && other_arguments);
  must(other_binding.execute(nullptr));
  EXPECT_EQ(tensors.read_o(), Tensors::expected('a'));
}

TEST_F(AttnHpp, APlanFileIsReadWithoutADevice) {
  const std::string bytes = contents_of({});
  const attn::PlanFile file = must(attn::PlanFile::open_memory(bytes));
  ASSERT_EQ(file.size(), 1U);
  const attn::PlanInfo plan = must(file.plan(0));
  EXPECT_EQ(plan.sm, 90);
  EXPECT_EQ(plan.cudnn_version, 91900);
  EXPECT_EQ(plan.tensors.size(), 3U);
  EXPECT_EQ(plan.params.size(), 1U);
  EXPECT_EQ(plan.shape[attn::Dim::Sq], 4);
  attn::LoadOptions options;
  std::size_t seen = 0;
  options.verify = [&seen](std::string_view contents) {
    seen = contents.size();
    return false;
  };
  EXPECT_EQ(attn::PlanFile::open_memory(bytes, options).error().code, attn::Code::plan_refused);
  EXPECT_EQ(seen, bytes.size());
  const attn::Runtime runtime = open();
  EXPECT_EQ(attn::Executable::load_memory(runtime, bytes, options).error().code,
            attn::Code::plan_refused);
  options.verify = {};
  options.sha256 = "";
  EXPECT_EQ(attn::PlanFile::open_memory(bytes, options).error().code, attn::Code::invalid_argument)
      << "a hash that was lost is not \"any\"";
  const attn::Executable executable = must(attn::Executable::load(runtime, file, 0));
  EXPECT_EQ(executable.signature(), plan.signature);
  EXPECT_EQ(executable.device_bytes(), plan.device_bytes);
}

TEST_F(AttnHpp, MemoryComesFromTheApplication) {
  const attn::Runtime bank = open();
  std::vector<attn::Memory> lent;
  attn::RuntimeOptions options;
  options.allocator.allocate = [&](std::size_t bytes, void*) -> void* {
    auto memory = attn::Memory::allocate(bank, bytes);
    if (!memory.ok()) return nullptr;
    lent.push_back(std::move(*memory));
    return lent.back().data();
  };
  options.allocator.free = [&](void* address, std::size_t, void*) {
    std::erase_if(lent, [&](const attn::Memory& memory) { return memory.data() == address; });
  };
  {
    const attn::Runtime runtime = open(options);
    const attn::Executable executable = load(runtime);
    const Tensors tensors(bank, 'a');
    attn::Binding binding =
        must(executable.bind(tensors.arguments(), attn::Workspace::owned(), 32));
    EXPECT_EQ(lent.size(), 1U);
    must(binding.execute(nullptr));
    EXPECT_EQ(tensors.read_o(), Tensors::expected('a'));
    const attn::Arguments wrong = tensors.arguments();
    EXPECT_EQ(executable.bind(wrong, attn::Workspace::owned(), 5000).error().code,
              attn::Code::invalid_argument);
  }
  EXPECT_TRUE(lent.empty());
}

TEST_F(AttnHpp, ACudaFailureIsToldApart) {
  const attn::Runtime runtime = open();
  const attn::Executable executable = load(runtime);
  const Tensors tensors(runtime, 'a');
  attn::Binding binding = must(executable.bind(tensors.arguments()));
  const StandinRule rule = attn::standin::fail_nth("cuGraphInstantiateWithFlags", 1, 2);
  attn::standin::cuda().control.script(&rule);
  const auto failed = attn::Graph::capture(std::move(binding));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().cuda_failure, attn::CudaFailure::out_of_memory);
  EXPECT_EQ(failed.error().cuda_code, 2);
  ASSERT_TRUE(binding) << "it is there still";
  EXPECT_NE(must(binding.cuda_graph()), nullptr);
  must(binding.execute(nullptr));
  EXPECT_EQ(tensors.read_o(), Tensors::expected('a'));
}

TEST_F(AttnHpp, ErrorsAreValues) {
  const attn::Runtime runtime = open();
  const auto missing = attn::Executable::load_file(runtime, "/no/such.attnplan");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, attn::Code::io);
  EXPECT_STREQ(attn::to_string(missing.error().code), "io");
  EXPECT_EQ(attn::exit_code(missing.error().code), 4);

  const attn::Executable executable = load(runtime);
  const auto unbound = executable.bind(attn::Arguments());
  ASSERT_FALSE(unbound.ok());
  EXPECT_EQ(unbound.error().code, attn::Code::binding);
  EXPECT_THAT(unbound.error().message, HasSubstr("'q'"));
  EXPECT_EQ(unbound.error().notes.size(), 3u);
  EXPECT_THAT(unbound.error().to_text(), HasSubstr("\n  note: "));
}

TEST_F(AttnHpp, ArgumentsKeepTheirFirstError) {
  const attn::Runtime runtime = open();
  const attn::Executable executable = load(runtime);
  const Tensors tensors(runtime, 'a');
  DLTensor on_host = {};
  on_host.device = {kDLCPU, 0};
  on_host.dtype = {kDLFloat, 32, 1};
  attn::Arguments arguments = tensors.arguments();
  arguments.tensor("mask", on_host).tensor("bias", {nullptr, attn::DType::f32, {2, 2}, {1}});
  const auto bound = executable.bind(arguments);
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().code, attn::Code::binding);
  EXPECT_THAT(bound.error().message, HasSubstr("'mask'"));
}

TEST_F(AttnHpp, DlpackTensorsAreBound) {
  const attn::Runtime runtime = open();
  const attn::Executable executable = load(runtime);
  const Tensors tensors(runtime, 'a');
  std::int64_t shape[] = {1, 2, 4, 8};
  DLTensor q = {};
  q.data = tensors.q.data();
  q.device = {kDLCUDA, 0};
  q.dtype = {kDLBfloat, 16, 1};
  q.ndim = 4;
  q.shape = shape;
  attn::Arguments arguments;
  arguments.tensor("q", q)
      .tensor("o", {tensors.o.data(), attn::DType::bf16, {1, 2, 4, 8}})
      .tensor("table", {tensors.table.data(), attn::DType::f32, {16}})
      .param("p0", 2.0);
  attn::Binding binding = must(executable.bind(arguments, attn::Workspace::stream_ordered()));
  must(binding.execute(nullptr));
  EXPECT_EQ(tensors.read_o(), Tensors::expected('a'));
}

TEST_F(AttnHpp, CopiesShareAndOutliveEachOther) {
  std::vector<std::string> told;
  attn::RuntimeOptions options;
  options.log = [&told](attn::LogLevel, std::string_view message) { told.emplace_back(message); };
  std::optional<attn::Runtime> runtime = open(options);
  EXPECT_FALSE(told.empty());
  std::optional<attn::Executable> executable = load(*runtime);
  const attn::Executable copy = *executable;
  attn::Executable again = load(*runtime);
  EXPECT_EQ(must(runtime->cache_counters()).hit, 1u);
  EXPECT_EQ(must(runtime->reset_cache_counters()).miss, 1u);
  EXPECT_EQ(must(runtime->cache_counters()).miss, 0u);
  const Tensors tensors(*runtime, 'a');
  again = copy;
  executable.reset();
  must(runtime->clear_cache());
  runtime.reset();
  attn::Binding binding = must(copy.bind(tensors.arguments()));
  must(binding.execute(nullptr));
  EXPECT_EQ(tensors.read_o(), Tensors::expected('a'));
}

TEST_F(AttnHpp, ElementsAreConverted) {
  const float values[] = {1, -2.5f};
  std::uint16_t stored[2] = {};
  must(attn::from_f32(attn::DType::bf16, values, 2, stored));
  EXPECT_EQ(stored[0], 0x3f80);
  float back[2] = {};
  must(attn::to_f32(attn::DType::bf16, stored, 2, back));
  EXPECT_EQ(back[1], -2.5f);
  EXPECT_EQ(attn::size_of(attn::DType::bf16), 2u);
}

}  // namespace
