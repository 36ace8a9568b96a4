"""The processes of ``rmq run``: the supervisor, its workers, and what each of them decides."""
