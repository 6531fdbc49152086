# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A PKCS#11 token with the library `python-pkcs11`: decrypt the file key of a kit with the token's RSA key."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.crypto import rsa, serialization
from .._deps.pkcs11 import pkcs11, pkcs11_errors
from ..errors import KeyServiceError
from ..keyservice.master import SecretBytes
from ..reasons import Reason
from .closing import token_key_digest
from .envelope import FILE_KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .envelope import TokenFacts


class Pkcs11Token:
    """An open session of a token; implements `closing.Token`."""

    def __init__(self, session: Any) -> None:
        """Store ``session``, which the caller closes."""
        self._session = session

    def public_keys(self) -> tuple[bytes, ...]:
        """Return the public keys (PEM) of the token's RSA keys, to which a kit can be encrypted."""
        return tuple(
            key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            for _handle, key in self._keys()
        )

    def unwrap(self, facts: TokenFacts) -> SecretBytes:
        """Return the file key of a kit; raises KIT_KEY_WRONG without its RSA key, KIT_DAMAGED for an altered text."""
        found = [handle for handle, key in self._keys() if token_key_digest(key) == facts.key_sha256]
        if not found:
            raise KeyServiceError(
                f"expected the RSA key {facts.key_sha256.hex()} that this kit is encrypted to, "
                "the token does not have it",
                reason=Reason.KIT_KEY_WRONG,
            )
        try:
            file_key = found[0].decrypt(facts.wrapped, mechanism=pkcs11().Mechanism.RSA_PKCS_OAEP)
        except pkcs11_errors().PKCS11Error:
            file_key = b""
        if len(file_key) != FILE_KEY_BYTES:
            raise KeyServiceError(
                "expected a file key that the token decrypts, the kit was altered", reason=Reason.KIT_DAMAGED
            )
        return SecretBytes(file_key)

    def _keys(self) -> Iterator[tuple[Any, rsa.RSAPublicKey]]:
        library = pkcs11()
        wanted = {
            library.Attribute.CLASS: library.ObjectClass.PRIVATE_KEY,
            library.Attribute.KEY_TYPE: library.KeyType.RSA,
        }
        for handle in self._session.get_objects(wanted):
            modulus, exponent = (
                int.from_bytes(handle[name], "big")
                for name in (library.Attribute.MODULUS, library.Attribute.PUBLIC_EXPONENT)
            )
            yield handle, rsa.RSAPublicNumbers(exponent, modulus).public_key()


@contextmanager
def open_token(module: str | Path, *, pin: SecretBytes, token_label: str = "") -> Iterator[Pkcs11Token]:
    """Open the token of the PKCS#11 ``module`` (a shared library, by its absolute path) and close it at the end.

    An empty ``token_label`` selects the only token. Raises KIT_TOKEN_UNUSABLE: no module, no such token, several, a
    wrong or locked PIN, or a device that fails.
    """
    path = Path(module)
    if not path.is_absolute() or not path.is_file():
        raise _unusable(f"a PKCS#11 module at an absolute path, {path} is none")
    library, errors = pkcs11(), pkcs11_errors()
    chosen: dict[str, Any] = {"token_flags": library.TokenFlag.TOKEN_INITIALIZED}
    chosen |= {"token_label": token_label} if token_label else {}
    try:
        with library.lib(str(path)).get_token(**chosen).open(user_pin=pin.reveal().decode("ascii")) as session:
            yield Pkcs11Token(session)
    except errors.NoSuchToken:
        raise _unusable(f"a token {token_label or ''} behind {path}, found none".replace("  ", " ")) from None
    except errors.MultipleTokensReturned:
        raise _unusable(f"one token behind {path}, found several; name one") from None
    except (errors.PinIncorrect, errors.PinInvalid, errors.PinLenRange):
        raise _unusable("the PIN of the token, got another") from None
    except errors.PinLocked:
        raise _unusable("a PIN that is not locked; the token's security officer unlocks it") from None
    except errors.PKCS11Error as error:
        raise _unusable(f"a token that works behind {path}, got {type(error).__name__}") from None


def _unusable(expected: str) -> KeyServiceError:
    return KeyServiceError(f"expected {expected}", reason=Reason.KIT_TOKEN_UNUSABLE)
