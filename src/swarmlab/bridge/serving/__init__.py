"""What our server and the watched servers are made of."""
