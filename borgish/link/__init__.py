"""Polls the borglet on each machine: assignments go out, differences in what runs come in."""
