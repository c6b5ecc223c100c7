"""Letters about one row in plain text or HTML, in English, German or a language of the user's own."""

from plausiflow.letters.catalogue import LANGUAGES, Catalogue, read_catalogue
from plausiflow.letters.content import LetterChange, LetterContent
from plausiflow.letters.rendering import FORMATS, LetterFormat, check_format, check_template, render_letter

__all__ = [
    "FORMATS", "LANGUAGES", "Catalogue", "LetterChange", "LetterContent", "LetterFormat", "check_format",
    "check_template", "read_catalogue", "render_letter",
]  # fmt: skip
