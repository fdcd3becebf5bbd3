"""The model's vocabulary: text to token ids, token ids to bytes."""

from __future__ import annotations

import ctypes

from batchserve.llama.bindings import Pointer, lib

#: Bytes of one token; longer ones exist only in broken files and are asked for again.
_PIECE_BYTES = 64


class Vocab:
    """A table of all pieces, made once: a lookup costs a quarter of a call into llama.cpp."""

    def __init__(self, model: Pointer) -> None:
        self._vocab = lib.llama_model_get_vocab(model)
        self.size: int = lib.llama_vocab_n_tokens(self._vocab)
        self._pieces = [self._read_piece(token, special=False) for token in range(self.size)]
        self._ending = frozenset(token for token in range(self.size) if lib.llama_vocab_is_eog(self._vocab, token))

    def piece(self, token: int) -> bytes:
        """The bytes that `token` adds to the text; empty for control tokens."""
        return self._pieces[token]

    def ends_generation(self, token: int) -> bool:
        """True for end-of-text and end-of-turn tokens, as `llama_vocab_is_eog` says."""
        return token in self._ending

    @property
    def bos_text(self) -> str:
        """The text of the begin-of-sequence token, empty if the model has none."""
        return self._special_text(lib.llama_vocab_bos(self._vocab))

    @property
    def eos_text(self) -> str:
        """The text of the end-of-sequence token, empty if the model has none."""
        return self._special_text(lib.llama_vocab_eos(self._vocab))

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of `text`. With `add_special` the model's begin token is put before it where it has one.

        Special tokens written in the text are recognised. May be called from any thread.
        """
        data = text.encode("utf-8", "surrogatepass")
        buffer = (lib.llama_token * (len(data) + 8))()
        count = lib.llama_tokenize(self._vocab, data, len(data), buffer, len(buffer), add_special, True)
        if count < 0:
            raise ValueError(f"the text of {len(data)} bytes cannot be tokenised")
        return list(buffer[:count])

    def _special_text(self, token: int) -> str:
        return "" if token < 0 else self._read_piece(token, special=True).decode("utf-8", "replace")

    def _read_piece(self, token: int, special: bool, room: int = _PIECE_BYTES) -> bytes:
        buffer = ctypes.create_string_buffer(room)
        size = lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, special)
        return self._read_piece(token, special, -size) if size < 0 else buffer.raw[:size]
