CHUNK_SIZE = 7


def chunked(b, h, q_idx, kv_idx):
    return (q_idx // CHUNK_SIZE == kv_idx // CHUNK_SIZE) & (q_idx >= kv_idx)
