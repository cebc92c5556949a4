"""The endpoints: requests in, answers out."""
