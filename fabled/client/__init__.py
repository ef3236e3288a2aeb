"""`fablectl`: the thin client of the socket. Imports nothing that the daemon is made of."""
