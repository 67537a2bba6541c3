#include "compiler/nvrtc/nvrtc.h"

#include <fmt/format.h>

#include "compiler/codegen/sources.h"

namespace attn::nvrtc {

Result<std::string> compile_kernel(const std::string& source, std::int64_t sm,
                                   const std::string& cudnn_folder, KernelKind kind,
                                   std::string* log) {
  constexpr std::int64_t kFirstSpecific = 90;  // sm_90a
  Source compiled;
  compiled.text = source;
  for (const support::EmbeddedFile& file : codegen::sources())
    compiled.headers.push_back({fmt::format("attn/{}", file.name), std::string(file.text)});
  compiled.options = codegen::options_of(kind);
  compiled.sm = sm;
  compiled.is_specific = kind == KernelKind::general && sm >= kFirstSpecific;
  return compile(compiled, cudnn_folder, log);
}

Result<worker::CompiledKernel> compile_for_client(const worker::KernelSource& source,
                                                  const std::string& cudnn_folder) {
  const KernelKind kind = source.is_general ? KernelKind::general : KernelKind::element_wise;
  worker::CompiledKernel kernel;
  ATTN_ASSIGN(kernel.image,
              compile_kernel(source.text, source.sm, cudnn_folder, kind, &kernel.log));
  return kernel;
}

}  // namespace attn::nvrtc
