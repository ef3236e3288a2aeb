"""The background service: composition, watching, jobs and the socket."""
