// One attention on several GPUs, with a process for each.
//
//   attnc compile specs/causal.attn --bind Sq=65536 --ranks 8 --target native -o causal.ranks
//   ranks causal.ranks ID_FILE    on every GPU, with RANK and WORLD_SIZE (README.md)
//
// Each process has the rows of q and o, and the keys and values, that are at home on its rank. They
// are random here; the time of an execute is printed, and how many rows and keys the rank has.
#include <attn_distributed.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "../common.h"
#include "nccl.h"

namespace {

constexpr int kExecutes = 20;
constexpr int kSecondsToWait = 60;

// A number that the launcher gives: by torchrun's names, or those of Open MPI or Slurm.
int number(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return otherwise;
}

struct Place {
  int rank = number({"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}, 0);
  int ranks = number({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}, 1);
  int device = number({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, rank);
};

attn::Status write_id(const std::string& path, const examples::NcclId& id) {
  const std::string unfinished = path + ".unfinished";
  std::ofstream(unfinished, std::ios::binary).write(id.bytes, sizeof id.bytes);
  if (std::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  return attn::Error{attn::Code::io, "cannot write " + path, {}, {}};
}

attn::Result<examples::NcclId> wait_for_id(const std::string& path) {
  for (int tenths = 0; tenths < 10 * kSecondsToWait; ++tenths) {
    examples::NcclId id = {};
    if (std::ifstream(path, std::ios::binary).read(id.bytes, sizeof id.bytes)) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return attn::Error{attn::Code::io, "rank 0 has not written " + path, {}, {}};
}

// Rank 0 makes the id that all processes need, and gives it to them in a file that all can read.
attn::Result<void*> connect(const examples::Nccl& nccl, const Place& place,
                            const std::string& path) {
  examples::NcclId id = {};
  if (place.rank == 0) {
    std::remove(path.c_str());  // of a run that did not end
    ATTN_TRY_ASSIGN(id, nccl.make_id());
    ATTN_TRY(write_id(path, id));
  } else {
    ATTN_TRY_ASSIGN(id, wait_for_id(path));
  }
  ATTN_TRY_ASSIGN(void* communicator, nccl.init(id, place.rank, place.ranks));
  if (place.rank == 0) std::remove(path.c_str());  // all have read it
  return communicator;
}

std::int64_t count(const std::vector<attn::Interval>& home) {
  std::int64_t count = 0;
  for (const attn::Interval& each : home) count += each.end - each.begin;
  return count;
}

attn::Status run_direction(const attn::Runtime& runtime, const attn::Distributed& attention,
                           attn::Direction direction, const attn::Stream& stream) {
  ATTN_TRY_ASSIGN(const auto infos, attention.tensors(direction));
  ATTN_TRY_ASSIGN(const auto params, attention.params(direction));
  std::vector<examples::Tensor> tensors;
  attn::Arguments arguments;
  for (const attn::TensorInfo& info : infos) {
    ATTN_TRY_ASSIGN(auto tensor, examples::make_tensor(runtime, info));
    tensors.push_back(std::move(tensor));
    arguments.tensor(info.name, examples::view_of(tensors.back()));
  }
  for (const attn::ParamInfo& param : params) arguments.param(param.name, param.dtype, 1);
  ATTN_TRY_ASSIGN(auto binding, attention.bind(direction, arguments));
  ATTN_TRY(binding.execute(stream.handle()));
  ATTN_TRY(stream.synchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kExecutes; ++i) ATTN_TRY(binding.execute(stream.handle()));
  ATTN_TRY(stream.synchronize());
  ATTN_TRY(attention.status());  // the outputs are valid
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  std::printf("rank %d: %s %.3f ms\n", attention.rank(),
              direction == attn::Direction::forward ? "forward" : "backward",
              time.count() / kExecutes);
  return {};
}

attn::Status run(const std::string& plan, const std::string& id_file) {
  const Place place;
  attn::RuntimeOptions of_runtime;
  of_runtime.device = place.device;
  ATTN_TRY_ASSIGN(const auto runtime, attn::Runtime::open(of_runtime));
  // The device's context becomes the thread's, of which NCCL makes its communicator.
  ATTN_TRY_ASSIGN(const auto stream, attn::Stream::create(runtime));
  const char* folder = std::getenv("ATTN_NCCL_DIR");
  ATTN_TRY_ASSIGN(const auto nccl, examples::Nccl::load(folder == nullptr ? "" : folder));

  bool aborted = false;
  attn::DistributedOptions options;
  ATTN_TRY_ASSIGN(options.communicator, connect(nccl, place, id_file));
  {
    ATTN_TRY_ASSIGN(const auto attention, attn::Distributed::open_file(runtime, plan, options));
    std::printf("rank %d of %d: %lld rows, %lld keys, %s\n", attention.rank(), attention.ranks(),
                static_cast<long long>(count(attention.rows())),
                static_cast<long long>(count(attention.keys())), attention.sharding().c_str());
    for (const attn::Direction direction : {attn::Direction::forward, attn::Direction::backward}) {
      if (attention.has(direction)) ATTN_TRY(run_direction(runtime, attention, direction, stream));
    }
    aborted = !attention.status().ok();
  }
  if (!aborted) nccl.destroy(options.communicator);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return examples::usage("ranks PLAN ID_FILE");
  return examples::end_with(run(argv[1], argv[2]));
}
