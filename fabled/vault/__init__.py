"""The Vault: immutable generations of transcripts, and the only writer of them."""
