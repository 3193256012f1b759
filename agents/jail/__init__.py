"""Jails of agents: how one starts, what it shows, its one way out, and its test."""

from __future__ import annotations
