STRIDE = 6


def strided(b, h, q_idx, kv_idx):
    distance = q_idx - kv_idx
    return (distance >= 0) & ((distance < STRIDE) | (distance % STRIDE == 0))
