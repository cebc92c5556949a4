"""HTTP/1.1 for the server: connections, admission, and the formats of bodies."""
