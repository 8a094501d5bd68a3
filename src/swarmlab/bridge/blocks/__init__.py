"""Blocks of a model: read, quantized, kept on disk and put on a device."""
