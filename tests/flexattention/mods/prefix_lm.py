PREFIX = 10


def prefix_lm(b, h, q_idx, kv_idx):
    prefix_mask = kv_idx < PREFIX
    causal_mask = q_idx >= kv_idx
    return prefix_mask | causal_mask
