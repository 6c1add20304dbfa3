"""What a release needs to be told: value objects shared by the library, flags and job files."""

from beam_ldp.settings.fields import SettingError
from beam_ldp.settings.sections import (
    Charge,
    Mechanism,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)

__all__ = [
    "Charge",
    "Mechanism",
    "Noise",
    "Output",
    "People",
    "Privacy",
    "SettingError",
    "Shuffling",
    "Source",
]
