"""Data for federated training: images that come with packages, and clients of one's own."""

from tff_adapters.data.clients import Clients, DataMissingError, dealt, load
from tff_adapters.data.files import BadRowsError, load_files

__all__ = ["BadRowsError", "Clients", "DataMissingError", "dealt", "load", "load_files"]
