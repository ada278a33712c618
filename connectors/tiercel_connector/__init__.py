"""Base of Tiercel's connectors in Python: a back end is a class with a method for each thing that a store does, the rest is here. docs/guide/connectors.md says how."""

from .back_end import BackEnd, BadOption, Down, Options, StoreError
from .batch import Item
from .contract import Status
from .service import run

__all__ = ["BackEnd", "BadOption", "Down", "Item", "Options", "Status", "StoreError", "run"]
