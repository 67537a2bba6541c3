// A stub cuDNN that only has a version.
#include <cstddef>

extern "C" std::size_t cudnnGetVersion() { return ATTN_VERSION_OF_CUDNN; }
