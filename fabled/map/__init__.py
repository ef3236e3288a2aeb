"""The only home of SQL: one writer, many read-only snapshots, one disposable database."""
