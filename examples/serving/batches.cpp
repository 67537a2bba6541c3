// Serves a changing batch from one CUDA graph: requests arrive, are prefilled in chunks beside the
// decodes of others, grow, and leave.
//
//   attnc compile examples/serving/batches.attn --target h200 --engine native -o batches.attnplan
//   batches batches.attnplan [--check]
//
// The graph is captured once, before the first request. It appends the new keys and values of each
// layer to the pages of a cache, makes one schedule on the GPU, and attends with it in all layers.
// Between its launches, only numbers in device memory change: lengths, page tables, slots, and how
// many sequences there are. Compares rows of each step with attention in double precision. With
// --check, each step's numbers are looked at first, as while an engine is being written.
#include <cstring>

#include "../common.h"
#include "driver.h"
#include "requests.h"

namespace {

using examples::Driver;
using examples::Held;
using examples::Part;
using examples::Sizes;

constexpr int kLayers = 4;
constexpr int kRequests = 40;
constexpr std::int64_t kStepRows = 128;  // the most of all sequences together
constexpr std::int64_t kPages = 400;     // fewer than all sequences could fill
constexpr double kTolerance = 0.02;      // of a bf16 result, of values up to 2

// The numbers of a step, in one block of memory on the host and one on the device.
class Numbers {
 public:
  explicit Numbers(const Sizes& sizes)
      : columns_(sizes.columns()),
        slots_(place(kStepRows * 8)),
        count_(place(4)),
        starts_(place((sizes.sequences + 1) * 4)),
        lengths_(place(sizes.sequences * 4)),
        table_(place(sizes.sequences * columns_ * 4)) {}

  std::size_t bytes() const { return bytes_; }
  // Places in the block, on the host or the device.
  std::int64_t* slots(void* block) const { return at<std::int64_t>(block, slots_); }
  std::int32_t* count(void* block) const { return at<std::int32_t>(block, count_); }
  std::int32_t* starts(void* block) const { return at<std::int32_t>(block, starts_); }
  std::int32_t* lengths(void* block) const { return at<std::int32_t>(block, lengths_); }
  std::int32_t* table(void* block) const { return at<std::int32_t>(block, table_); }

  // Writes a step to a block on the host. What is beyond its sequences is not read, and stays.
  void write(void* block, const std::vector<Part>& parts, std::int64_t page) const {
    std::int64_t* slot = slots(block);
    std::fill(slot, slot + kStepRows, -1);  // rows that the step has not are skipped
    *count(block) = static_cast<std::int32_t>(parts.size());
    std::int32_t rows = 0;
    for (std::size_t sequence = 0; sequence < parts.size(); ++sequence) {
      const Part& part = parts[sequence];
      starts(block)[sequence] = rows;
      lengths(block)[sequence] = static_cast<std::int32_t>(part.first + part.rows);
      std::copy(part.request->pages.begin(), part.request->pages.end(),
                table(block) + static_cast<std::int64_t>(sequence) * columns_);
      for (std::int64_t row = 0; row < part.rows; ++row)
        slot[rows++] = part.slot(part.first + row, page);
    }
    starts(block)[parts.size()] = rows;
  }

 private:
  std::size_t place(std::int64_t bytes) {
    const std::size_t first = bytes_;
    bytes_ += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
    return first;
  }
  template <typename Number>
  static Number* at(void* block, std::size_t offset) {
    return reinterpret_cast<Number*>(static_cast<std::byte*>(block) + offset);
  }

  std::int64_t columns_;
  std::size_t bytes_ = 0;
  std::size_t slots_, count_, starts_, lengths_, table_;
};

struct Layer {
  attn::Memory rows;     // bf16 [kStepRows, Hq + 2 Hkv, D]: q, k and v of one projection
  attn::Memory keys;     // bf16 [pages, page, Hkv, D]
  attn::Memory values;   // the same
  attn::Memory outputs;  // bf16 [kStepRows, Hq, D]
  attn::Binding binding;
};

class Server {
 public:
  static attn::Result<Server> create(const std::string& path);

  // Captures a step: the first capture needs no execute before it.
  attn::Status capture();
  // Serves all requests, and compares.
  attn::Status serve(bool check);

 private:
  Server(attn::Runtime runtime, attn::Executable executable, const Sizes& sizes)
      : runtime_(std::move(runtime)),
        executable_(std::move(executable)),
        sizes_(sizes),
        numbers_(sizes) {}

  std::int64_t row_elements() const { return (sizes_.heads + 2 * sizes_.heads_kv) * sizes_.depth; }
  std::byte* element(void* memory, std::int64_t index) const {
    return static_cast<std::byte*>(memory) + index * 2;
  }
  attn::Result<attn::Memory> allocate(std::int64_t elements) const {
    return attn::Memory::allocate(runtime_, static_cast<std::size_t>(elements) * 2);
  }
  attn::Status make_layers();
  attn::Result<attn::Binding> bind(const Layer& layer);
  attn::Status append(Layer& layer);
  attn::Status upload(const std::vector<Part>& parts);
  attn::Status look();
  attn::Status compare(const std::vector<Part>& parts, int step);
  attn::Status compare_row(const std::vector<float>& o, int layer, const Part& part,
                           std::int64_t row, std::int64_t in_part, std::int64_t head);

  attn::Runtime runtime_;
  attn::Executable executable_;
  Sizes sizes_;
  Numbers numbers_;
  Driver driver_;
  attn::Stream stream_;
  attn::Memory device_numbers_, workspace_, outside_;
  Held host_numbers_{nullptr, nullptr};
  std::vector<Held> host_rows_;  // of each layer
  std::vector<Layer> layers_;
  attn::Schedule schedule_;
  Held graph_{nullptr, nullptr};
  std::int64_t compared_ = 0;
  double worst_ = 0;
};

const attn::TensorInfo* find(const attn::Executable& executable, const std::string& name) {
  for (const attn::TensorInfo& info : executable.tensors()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

// The sizes of a plan of batches.attn, or of one that differs in its dims alone.
attn::Result<Sizes> sizes_of(const attn::Executable& executable) {
  const attn::TensorInfo *q = find(executable, "q"), *k = find(executable, "k"),
                         *v = find(executable, "v");
  const attn::TensorInfo* table = find(executable, "page_table");
  const bool fits = q != nullptr && k != nullptr && v != nullptr && table != nullptr &&
                    find(executable, "cu_seqlens_q") != nullptr &&
                    executable.tensors().size() == 7 && q->dtype == attn::DType::bf16 &&
                    k->dims == v->dims && q->dims[3] == k->dims[3];
  if (!fits) {
    return attn::Error{attn::Code::invalid_argument, "the plan is not one of batches.attn", {}, {}};
  }
  if (table->dims[1] >= kPages) {
    return attn::Error{
        attn::Code::invalid_argument, "a sequence has more pages than the cache", {}, {}};
  }
  return Sizes{q->dims[0], q->dims[2], table->dims[1] * k->dims[2],
               q->dims[1], k->dims[1], q->dims[3],
               k->dims[2], kPages};
}

attn::Result<Server> Server::create(const std::string& path) {
  ATTN_TRY_ASSIGN(auto runtime, attn::Runtime::open());
  ATTN_TRY_ASSIGN(auto executable, attn::Executable::load_file(runtime, path));
  ATTN_TRY_ASSIGN(const Sizes sizes, sizes_of(executable));
  Server server(std::move(runtime), std::move(executable), sizes);
  ATTN_TRY_ASSIGN(server.driver_, Driver::open());
  ATTN_TRY_ASSIGN(server.stream_, attn::Stream::create(server.runtime_));
  ATTN_TRY_ASSIGN(server.schedule_, attn::Schedule::create(server.executable_));
  ATTN_TRY(server.make_layers());
  return server;
}

attn::Status Server::make_layers() {
  ATTN_TRY_ASSIGN(device_numbers_, attn::Memory::allocate(runtime_, numbers_.bytes()));
  ATTN_TRY_ASSIGN(host_numbers_, driver_.allocate(numbers_.bytes()));
  std::memset(host_numbers_.get(), 0, numbers_.bytes());
  ATTN_TRY_ASSIGN(outside_, attn::Memory::allocate(runtime_, 4));
  const std::int32_t none = 0;
  ATTN_TRY(outside_.upload(&none, sizeof none));
  // The layers run one after another, so they can share one workspace.
  ATTN_TRY_ASSIGN(
      workspace_,
      attn::Memory::allocate(runtime_, static_cast<std::size_t>(executable_.workspace_bytes())));
  const std::int64_t pool = sizes_.pages * sizes_.page * sizes_.heads_kv * sizes_.depth;
  for (int i = 0; i < kLayers; ++i) {
    Layer layer;
    ATTN_TRY_ASSIGN(layer.rows, allocate(kStepRows * row_elements()));
    ATTN_TRY_ASSIGN(layer.keys, allocate(pool));
    ATTN_TRY_ASSIGN(layer.values, allocate(pool));
    ATTN_TRY_ASSIGN(layer.outputs, allocate(kStepRows * sizes_.heads * sizes_.depth));
    ATTN_TRY_ASSIGN(layer.binding, bind(layer));
    ATTN_TRY(layer.binding.use_schedule(schedule_));
    ATTN_TRY_ASSIGN(Held rows,
                    driver_.allocate(static_cast<std::size_t>(kStepRows * row_elements()) * 2));
    host_rows_.push_back(std::move(rows));
    layers_.push_back(std::move(layer));
  }
  return {};
}

attn::Result<attn::Binding> Server::bind(const Layer& layer) {
  const std::int64_t heads_kv = sizes_.heads_kv, depth = sizes_.depth, page = sizes_.page;
  void* numbers = device_numbers_.data();
  const attn::TensorInfo &q = *find(executable_, "q"), &o = *find(executable_, "o");
  // In the plan's order, [B, H, S, D] and [pages, Hkv, page, D], with the strides that they have.
  const std::vector<std::int64_t> cache = {sizes_.pages, heads_kv, page, depth};
  const std::vector<std::int64_t> steps = {page * heads_kv * depth, depth, heads_kv * depth, 1};
  attn::Arguments arguments;
  arguments
      .tensor("q", {layer.rows.data(), q.dtype, q.dims, {q.strides[0], depth, row_elements(), 1}})
      .tensor("o", {layer.outputs.data(), o.dtype, o.dims, o.strides})
      .tensor("k", {layer.keys.data(), attn::DType::bf16, cache, steps})
      .tensor("v", {layer.values.data(), attn::DType::bf16, cache, steps})
      .address("cu_seqlens_q", numbers_.starts(numbers))
      .address("lengths_kv", numbers_.lengths(numbers))
      .address("page_table", numbers_.table(numbers));
  return executable_.bind(arguments, attn::Workspace::of(workspace_.data()));
}

attn::Status Server::append(Layer& layer) {
  const std::int64_t heads = sizes_.heads, heads_kv = sizes_.heads_kv, depth = sizes_.depth;
  attn::AppendArguments arguments;
  arguments.rows = kStepRows;  // those of other steps too: their slots are -1
  arguments.k = attn::rows(element(layer.rows.data(), heads * depth), attn::DType::bf16, heads_kv,
                           depth, row_elements(), depth);
  arguments.v = attn::rows(element(layer.rows.data(), (heads + heads_kv) * depth),
                           attn::DType::bf16, heads_kv, depth, row_elements(), depth);
  arguments.k_pool = attn::pool(layer.keys.data(), attn::DType::bf16,
                                sizes_.page * heads_kv * depth, heads_kv * depth, depth);
  arguments.v_pool = arguments.k_pool;
  arguments.v_pool.data = layer.values.data();
  arguments.pages = sizes_.pages;
  arguments.page_size = sizes_.page;
  arguments.slot_mapping = numbers_.slots(device_numbers_.data());
  arguments.outside = static_cast<std::int32_t*>(outside_.data());
  return attn::append(runtime_, arguments, stream_.handle());
}

attn::Status Server::capture() {
  const std::int32_t* count = numbers_.count(device_numbers_.data());
  const auto step = [&]() -> attn::Status {
    ATTN_TRY(schedule_.build(layers_[0].binding, attn::Sequences::at(count), stream_.handle()));
    for (Layer& layer : layers_) {
      ATTN_TRY(append(layer));
      ATTN_TRY(layer.binding.execute(stream_.handle()));
    }
    return {};
  };
  ATTN_TRY_ASSIGN(graph_, driver_.capture(stream_.handle(), step));
  return {};
}

attn::Status Server::upload(const std::vector<Part>& parts) {
  numbers_.write(host_numbers_.get(), parts, sizes_.page);
  ATTN_TRY(driver_.copy(device_numbers_.data(), host_numbers_.get(), numbers_.bytes(),
                        stream_.handle()));
  // What the layers before attention would have written.
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::vector<float> elements = examples::projection_of(sizes_, layer, parts);
    void* rows = host_rows_[static_cast<std::size_t>(layer)].get();
    ATTN_TRY(attn::from_f32(attn::DType::bf16, elements.data(), elements.size(), rows));
    ATTN_TRY(driver_.copy(layers_[static_cast<std::size_t>(layer)].rows.data(), rows,
                          elements.size() * 2, stream_.handle()));
  }
  return {};
}

// Names the first number of the step that would make kernels read other memory. Waits.
attn::Status Server::look() {
  const std::int32_t* count = numbers_.count(device_numbers_.data());
  ATTN_TRY(schedule_.build(layers_[0].binding, attn::Sequences::at(count), stream_.handle()));
  ATTN_TRY(layers_[0].binding.check(stream_.handle()));
  ATTN_TRY_ASSIGN(const std::uint32_t flags, schedule_.flags(stream_.handle()));
  if (flags == 0) return {};
  return attn::Error{
      attn::Code::internal, "the schedule has flags " + std::to_string(flags), {}, {}};
}

attn::Status Server::compare(const std::vector<Part>& parts, int step) {
  const int layer = step % kLayers;
  const std::int64_t head = step / kLayers % sizes_.heads;
  std::vector<std::byte> bytes(static_cast<std::size_t>(kStepRows * sizes_.heads * sizes_.depth) *
                               2);
  std::vector<float> o(bytes.size() / 2);
  ATTN_TRY(layers_[static_cast<std::size_t>(layer)].outputs.download(bytes.data(), bytes.size()));
  ATTN_TRY(attn::to_f32(attn::DType::bf16, bytes.data(), o.size(), o.data()));
  std::int64_t row = 0;
  for (const Part& part : parts) {
    ATTN_TRY(compare_row(o, layer, part, row, 0, head));
    ATTN_TRY(compare_row(o, layer, part, row, part.rows - 1, head));
    row += part.rows;
  }
  return {};
}

attn::Status Server::compare_row(const std::vector<float>& o, int layer, const Part& part,
                                 std::int64_t row, std::int64_t in_part, std::int64_t head) {
  const std::vector<double> wanted =
      examples::attention_of(sizes_, layer, part.request->number, part.first + in_part, head);
  const float* found = o.data() + ((row + in_part) * sizes_.heads + head) * sizes_.depth;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(wanted[i] - double{found[i]});
    if (!(difference <= kTolerance)) {
      const std::string at = "request " + std::to_string(part.request->number) + ", row " +
                             std::to_string(part.first + in_part) + ", layer " +
                             std::to_string(layer);
      return attn::Error{
          attn::Code::mismatch,
          at + ": " + std::to_string(found[i]) + " instead of " + std::to_string(wanted[i]),
          {},
          {}};
    }
    worst_ = std::max(worst_, difference);
  }
  compared_ += 1;
  return {};
}

attn::Status Server::serve(bool check) {
  examples::Requests requests(sizes_, kRequests);
  int steps = 0;
  std::size_t least = static_cast<std::size_t>(sizes_.sequences), most = 0;
  for (std::vector<Part> parts; !(parts = requests.next(kStepRows)).empty(); ++steps) {
    ATTN_TRY(upload(parts));
    if (check) ATTN_TRY(look());
    ATTN_TRY(driver_.launch(graph_.get(), stream_.handle()));
    ATTN_TRY(stream_.synchronize());
    ATTN_TRY(compare(parts, steps));
    least = std::min(least, parts.size());
    most = std::max(most, parts.size());
  }
  std::int32_t outside = 0;
  ATTN_TRY(outside_.download(&outside, sizeof outside));
  if (outside != 0)
    return attn::Error{attn::Code::internal, "rows had slots outside of the cache", {}, {}};
  std::printf("%d requests, %zu to %zu at once, served by %d launches of one graph of %d layers\n",
              kRequests, least, most, steps, kLayers);
  std::printf("%lld rows compared with the CPU: they differ by at most %.4f\n",
              static_cast<long long>(compared_), worst_);
  return {};
}

attn::Status run(const std::string& path, bool check) {
  ATTN_TRY_ASSIGN(Server server, Server::create(path));
  ATTN_TRY(server.capture());
  return server.serve(check);
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::strcmp(argv[2], "--check") == 0;
  if (argc < 2 || argc > 3 || (argc == 3 && !check)) {
    return examples::usage("batches PLAN [--check]");
  }
  return examples::end_with(run(argv[1], check));
}
