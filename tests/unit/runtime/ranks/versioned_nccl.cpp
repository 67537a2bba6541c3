// A stub of NCCL that only has a version.
extern "C" int ncclGetVersion(int* version) {
  *version = ATTN_VERSION_OF_NCCL;
  return 0;
}
