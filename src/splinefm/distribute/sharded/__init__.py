"""The model of many ranks: TorchRec tables, batches for them, optimizers and penalties."""
