// Fuzzes the compiler with well-typed specs: the front end accepts them or finds a statically
// invalid value; lowering returns a program without patterns that crash cuDNN, or an error with a
// position.
#include <algorithm>
#include <cstdio>

#include "compiler/driver/driver.h"
#include "tests/fuzz/quantized_spec.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/typed_spec.h"
#include "tests/support/crash_patterns.h"

namespace attn::fuzz {
namespace {

// A well-typed spec may still read outside a tensor, divide by 0 or be NaN.
bool is_static(const diag::Diagnostic& found) {
  return diag::severity_of(found.code) != diag::Severity::error ||
         found.code == diag::Code::index_out_of_range || found.code == diag::Code::bad_operand ||
         found.code == diag::Code::not_a_number;
}

// Ends the process unless `holds`, after what was found and the spec.
void require_of(const std::string& text, bool holds, const std::string& found) {
  if (!holds) std::fprintf(stderr, "%s\n%s", found.c_str(), text.c_str());
  require(holds);
}

void try_typed(const std::string& text) {
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  if (!attention) {
    return require_of(text, std::ranges::all_of(sink.sorted(), is_static), diag::to_text(sink));
  }
  const Result<plan::Program> program = driver::lower(*attention, "cudnn");
  if (!program.ok()) {
    const bool placed = !program.error().payload.empty();
    return require_of(text, program.error().code == ErrorCode::unsupported && placed,
                      program.error().message);
  }
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(*program)) {
    const std::string pattern = testing::crash_pattern(step->graph);
    require_of(text, pattern.empty(), pattern);
  }
}

}  // namespace

const std::vector<std::string>& words() {
  static const std::vector<std::string> all = {std::string(1, '\0'), "\x01", "\x05", "\xFF"};
  return all;
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (std::uint64_t number = 0; number < 64; ++number) all.push_back(typed_decisions(number));
  return all;
}

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attn::fuzz::try_typed(attn::fuzz::typed_spec_of({data, size}));
  attn::fuzz::try_typed(attn::fuzz::quantized_spec_of({data, size}));
  return 0;
}
