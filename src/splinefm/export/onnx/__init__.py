"""One ONNX graph from raw columns to predictions."""
