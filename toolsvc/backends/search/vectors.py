"""How a query's vector travels: little-endian float32 in base64, as tokens travel in bytes.

384 numbers are 2 KiB so. As a list of JSON numbers they would be twice that, and cost half a
millisecond to read out of a protobuf Struct.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

from toolsvc.backends.search.errors import WrongVector


def encode_vector(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def decode_vector(text: str) -> NDArray[np.float32]:
    """Inverse of `encode_vector`. Raises WrongVector for any other text."""
    try:
        data = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise WrongVector(f"the vector is not base64: {error}") from error
    if not data or len(data) % 4:
        raise WrongVector(f"the vector has {len(data)} bytes, not 4 a number")
    return np.frombuffer(data, "<f4").astype(np.float32)
