#include "bench/flashinfer_peer/reference.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <set>

#include "bench/flashinfer_peer/elements.h"

namespace attn::flashinfer_peer {
namespace {

std::set<int> chosen_sequences(const Case& facts) {
  const auto [shortest, longest] = std::minmax_element(facts.lengths.begin(), facts.lengths.end());
  const int last = facts.sequences() - 1;
  std::set<int> chosen = {static_cast<int>(shortest - facts.lengths.begin()),
                          static_cast<int>(longest - facts.lengths.begin())};
  for (int quarter : {0, 1, 3, 4}) chosen.insert(last * quarter / 4);
  const auto most = std::max_element(facts.rows.begin(), facts.rows.end());
  chosen.insert(static_cast<int>(most - facts.rows.begin()));
  return chosen;
}

// Place of a key's first element in the pools.
std::uint64_t place_of(const Batch& batch, int sequence, int key, int head) {
  const int page = batch.host.pages[batch.host.page_starts[sequence] + key / batch.facts.page];
  return page * batch.strides.page + key % batch.facts.page * batch.strides.key +
         head * batch.strides.head;
}

double value_at(Tensor tensor, std::uint64_t place) {
  return static_cast<double>(__bfloat162float(element(tensor, place)));
}

double relative_l2(const std::vector<double>& expected, const __nv_bfloat16* found) {
  double difference = 0, norm = 0;
  for (int d = 0; d < kDim; ++d) {
    const double error = static_cast<double>(__bfloat162float(found[d])) - expected[d];
    difference += error * error;
    norm += expected[d] * expected[d];
  }
  return std::sqrt(difference / norm);
}

}  // namespace

Reference::Reference(const Batch& batch) {
  for (int sequence : chosen_sequences(batch.facts)) {
    const int rows = batch.facts.rows[sequence];
    for (int row : std::set<int>{0, rows / 2, rows - 1})
      for (int head : {sequence % kQueryHeads, (sequence + 13) % kQueryHeads})
        rows_.push_back({sequence, row, head, {}});
  }
  std::vector<std::future<std::vector<double>>> outputs;
  for (const Row& row : rows_)
    outputs.push_back(std::async(std::launch::async, [&] { return computed(batch, row); }));
  for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].output = outputs[i].get();
}

std::vector<double> Reference::computed(const Batch& batch, const Row& row) {
  const int rows = batch.facts.rows[row.sequence];
  const int visible = batch.facts.lengths[row.sequence] - rows + row.row + 1;
  const std::uint64_t query =
      (std::uint64_t(batch.host.row_starts[row.sequence] + row.row) * kQueryHeads + row.head) *
      kDim;
  std::vector<double> q(kDim), scores(visible), output(kDim);
  for (int d = 0; d < kDim; ++d) q[d] = value_at(Tensor::kQuery, query + d) / std::sqrt(kDim);
  for (int key = 0; key < visible; ++key) {
    const std::uint64_t place = place_of(batch, row.sequence, key, row.head / kGroup);
    for (int d = 0; d < kDim; ++d) scores[key] += q[d] * value_at(Tensor::kKey, place + d);
  }
  const double greatest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (int key = 0; key < visible; ++key) {
    const std::uint64_t place = place_of(batch, row.sequence, key, row.head / kGroup);
    const double weight = std::exp(scores[key] - greatest);
    sum += weight;
    for (int d = 0; d < kDim; ++d) output[d] += weight * value_at(Tensor::kValue, place + d);
  }
  for (double& each : output) each /= sum;
  return output;
}

Comparison Reference::compare(const Batch& batch) const {
  const std::size_t count = static_cast<std::size_t>(batch.rows()) * kQueryHeads * kDim;
  std::vector<__nv_bfloat16> outputs(count);
  check(cudaMemcpy(outputs.data(), batch.outputs(), count * sizeof(__nv_bfloat16),
                   cudaMemcpyDeviceToHost),
        "copying the outputs");
  Comparison comparison;
  comparison.all_finite = std::all_of(outputs.begin(), outputs.end(), [](__nv_bfloat16 each) {
    return std::isfinite(__bfloat162float(each));
  });
  for (const Row& row : rows_) {
    const std::size_t place =
        static_cast<std::size_t>(batch.host.row_starts[row.sequence] + row.row);
    const double error =
        relative_l2(row.output, outputs.data() + (place * kQueryHeads + row.head) * kDim);
    if (!(error <= comparison.error)) comparison.error = error;  // also a NaN
  }
  return comparison;
}

void poison(const Batch& batch) {
  const std::size_t count = static_cast<std::size_t>(batch.rows()) * kQueryHeads * kDim;
  check(cudaMemset(batch.outputs(), 0xFF, count * sizeof(__nv_bfloat16)), "filling the outputs");
}

}  // namespace attn::flashinfer_peer
