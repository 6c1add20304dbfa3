"""Signing keys of auditors, made for tests."""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def make_key() -> Ed25519PrivateKey:
    """A new signing key: the auditor's, kept where the operator cannot read it."""
    return Ed25519PrivateKey.generate()


def private_bytes(key: Ed25519PrivateKey) -> bytes:
    """The key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The public half as PEM."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
