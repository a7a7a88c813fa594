"""ONNX files as graphs: the forward pass is read, the backward pass is derived from it."""
