"""Fine bins with bounds, ONNX, libffm, plain tables."""
