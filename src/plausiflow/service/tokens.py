"""What a token of the service must look like."""

from __future__ import annotations

from plausiflow.errors import InvalidInputError

MIN_TOKEN_LENGTH = 16


def check_token_text(token: str) -> None:
    """Raise unless a token is long enough and can be sent in a header."""
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInputError(
            f"`token` must have {MIN_TOKEN_LENGTH} visible ASCII characters or more, without spaces; got "
            f"{len(token)}. Create one: python -c 'import secrets; print(secrets.token_urlsafe())'."
        )
