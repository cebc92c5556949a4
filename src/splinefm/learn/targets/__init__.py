"""What is predicted: labels of classes, and what the loss is fitted to."""
