// What client and server tell each other in `initialize`.
#pragma once

#include "tools/lsp/features.h"

namespace attn::tools::lsp {

// UTF-8, in which texts are kept, if the client can; UTF-16, which every client can, if not.
Encoding encoding_for(const Json& capabilities);
Client client_of(const Json& capabilities);
Json capabilities(Encoding encoding);  // of the server

}  // namespace attn::tools::lsp
