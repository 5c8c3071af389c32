"""Initializations to share: by name, on the hub, as ONNX, with a model card."""
