"""Stands for a step of gpu_smoke: says which GPU it sees, and how GPUs are counted."""

import os

print(os.environ["CUDA_VISIBLE_DEVICES"])
print(os.environ["CUDA_DEVICE_ORDER"])
