"""What people and programs call: ``/v1`` over HTTP, with tokens, problem details and a watch."""
