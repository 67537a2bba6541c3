import torch

document_id = torch.arange(48) // 20
offsets = torch.tensor([0, 20, 40])
PREFIX = 4


def logical_positions(b, h, q_idx, kv_idx):
    same_doc = document_id[q_idx] == document_id[kv_idx]
    # positions within the document
    q_logical = q_idx - offsets[document_id[q_idx]]
    kv_logical = kv_idx - offsets[document_id[kv_idx]]
    inner = (kv_logical < PREFIX) | (q_logical >= kv_logical)
    return torch.where(same_doc, inner, False)
