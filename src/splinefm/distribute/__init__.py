"""Training on several processes and machines: TorchRec's sharded tables under torchrun."""
