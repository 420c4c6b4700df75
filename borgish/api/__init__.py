"""The door for people and programs: ``/v1`` over HTTP, with tokens, problem details and a watch."""
