"""What a `Fitted` is good for."""
