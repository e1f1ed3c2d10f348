"""From text to token files, and back: corpora, tokenizers, preparation, reading."""
