"""The transforms of this library in Beam YAML: `provider.yaml` beside this file names them.

What is configured is what a job file says (`beam_ldp.settings`), read as strictly (`config`); what
comes out are rows with a schema, which every sink of Beam YAML takes. `rows` holds the transforms
from rows to estimates, `collecting` the two that are halves of a release with files between them.
"""

from __future__ import annotations

from beam_ldp.transforms.yaml.collecting import CollectReports, Randomize
from beam_ldp.transforms.yaml.rows import PrivateFrequencies, PrivateMean, PrivateQuestions

__all__ = ["CollectReports", "PrivateFrequencies", "PrivateMean", "PrivateQuestions", "Randomize"]
