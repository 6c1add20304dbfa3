"""The transforms of this library in Beam YAML: `provider.yaml` beside this file names them.

What is configured is what a job file says (`beam_ldp.settings`), read as strictly (`config`); what
comes out are rows with a schema (`rows`), which every sink of Beam YAML takes. `provider` holds the
transforms, `collecting` the two that are halves of a release with files between them.
"""

from __future__ import annotations

from beam_ldp.transforms.yaml.collecting import CollectReports, Randomize
from beam_ldp.transforms.yaml.provider import PrivateFrequencies, PrivateMean, PrivateQuestions

__all__ = ["CollectReports", "PrivateFrequencies", "PrivateMean", "PrivateQuestions", "Randomize"]
