"""Adapters of times, rates, costs and hardware."""

ADAPTERS: dict = {}
RELATIONS: dict = {}
