"""What can be said about ring-and-dip games (cd82 and its kind): families of claims (`families`), their words
(`phrases`), and which of them are worth a trial (`lexicon`)."""

from internalize.knowledge.ringdip.lexicon import RingDipLexicon

__all__ = ["RingDipLexicon"]
