import torch

SEQ = 24
BLOCK = 5


def block_diffusion(b, h, q_idx, kv_idx):
    # the first half is noised, the second half clean
    x0_q = q_idx >= SEQ
    x0_kv = kv_idx >= SEQ
    block_q = torch.where(x0_q, (q_idx - SEQ) // BLOCK, q_idx // BLOCK)
    block_kv = torch.where(x0_kv, (kv_idx - SEQ) // BLOCK, kv_idx // BLOCK)
    block_diagonal = (block_q == block_kv) & (x0_q == x0_kv)
    offset_block_causal = (block_q > block_kv) & x0_kv & ~x0_q
    block_causal = (block_q >= block_kv) & x0_kv & x0_q
    return block_diagonal | offset_block_causal | block_causal
