import torch

CANVAS_W = 8
CANVAS_H = 6
KERNEL_W = 5
KERNEL_H = 3


def natten(b, h, q_idx, kv_idx):
    q_x = q_idx % CANVAS_W
    q_y = q_idx // CANVAS_W
    kv_x = kv_idx % CANVAS_W
    kv_y = kv_idx // CANVAS_W
    # the window stays inside the canvas
    center_x = torch.clamp(q_x, KERNEL_W // 2, (CANVAS_W - 1) - KERNEL_W // 2)
    center_y = torch.clamp(q_y, KERNEL_H // 2, (CANVAS_H - 1) - KERNEL_H // 2)
    hori_mask = torch.abs(center_x - kv_x) <= KERNEL_W // 2
    vert_mask = torch.abs(center_y - kv_y) <= KERNEL_H // 2
    return hori_mask & vert_mask
