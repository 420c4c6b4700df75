"""The API server: what people and programs call, ``/v1`` over HTTP, with tokens, problem details, a watch."""
