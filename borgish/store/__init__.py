"""Keeps the journal (Borg's change log), the tables and the checkpoints (its snapshots) of a cell in SQLite
or Postgres, where Kubernetes has etcd. There is no Paxos and no replica of its own: what the database has
committed is what happened."""
